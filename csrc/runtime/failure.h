// failure.h: how native code says that something went wrong. Inside the library a failure is an exception; abi.cpp turns every
// exception into a status and a sentence in the caller's buffer, so none crosses the C ABI.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <string>
#include <utility>

#include "../bloomery.h"

namespace bl {

struct Failure {
  bl_status code;
  std::string text;  // one sentence, no final period
};

// Throws a Failure with a printf-style text.
[[noreturn]] inline __attribute__((format(printf, 2, 3))) void fail(bl_status code, const char *format, ...) {
  char text[768];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  throw Failure{code, text};
}

}  // namespace bl
