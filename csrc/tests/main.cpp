// main.cpp: native_tests, the tests that run under sanitizers (scripts/build_native.ts --test --sanitize address,undefined).
#include "check.h"

namespace bl_test {
int n_failed = 0, n_checked = 0;
}

int main() {
  bl_test::coding_tests();
  bl_test::kernel_tests();
  bl_test::lattice_tests();
  bl_test::program_tests();
  fprintf(stderr, "native_tests: %d checks, %d failed\n", bl_test::n_checked, bl_test::n_failed);
  return bl_test::n_failed == 0 ? 0 : 1;
}
