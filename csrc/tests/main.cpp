// main.cpp: native_tests, the tests that run under sanitizers (scripts/build_native.ts --test --sanitize address,undefined).
//
//   native_tests CASES           all tests of the host; CASES: a folder that scripts/dump_op_cases.ts wrote
//   native_tests CASES DEVICE    the op cases on that device alone (on a card: under compute-sanitizer)
#include <cstdlib>

#include "check.h"
#include "replay.h"

namespace bl_test {
int n_failed = 0, n_checked = 0;
}

int main(int argc, char **argv) {
  using namespace bl_test;
  if (argc < 2) {
    fprintf(stderr, "usage: native_tests CASES [DEVICE]\n");
    return 2;
  }
  const std::vector<Case> cases = read_cases(argv[1]);
  if (argc > 2) {
    replay_tests(cases, uint32_t(atoi(argv[2])));
  } else {
    coding_tests();
    kernel_tests();
    lattice_tests();
    pool_tests();
    replay_tests(cases, 0);
    program_tests(cases);
  }
  fprintf(stderr, "native_tests: %zu op cases, %d checks, %d failed\n", cases.size(), n_checked, n_failed);
  return n_failed == 0 ? 0 : 1;
}
