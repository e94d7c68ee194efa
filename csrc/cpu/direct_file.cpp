// direct_file.cpp: O_DIRECT on Linux; elsewhere, and where a file system refuses it, reads go through the page cache.
#include "direct_file.h"

#include <cerrno>
#include <climits>
#include <cstdio>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/sysmacros.h>
#endif

namespace bl {

DirectFile::DirectFile(std::shared_ptr<const File> file) : file_(std::move(file)) {
  struct stat st;
  if (fstat(file_->fd(), &st) == 0) drive_ = uint64_t(st.st_dev);
#if defined(__linux__)
  char name[64], target[PATH_MAX];
  snprintf(name, sizeof name, "/sys/dev/block/%u:%u", major(dev_t(drive_)), minor(dev_t(drive_)));
  const ssize_t n = readlink(name, target, sizeof target - 1);
  if (n > 0) {
    const std::string path(target, size_t(n));
    drive_name_ = path.substr(path.rfind('/') + 1);
  }
#if defined(O_DIRECT)
  // By the number of the open file: its path may lead to another one by now.
  snprintf(name, sizeof name, "/proc/self/fd/%d", file_->fd());
  direct_fd_ = open(name, O_RDONLY | O_CLOEXEC | O_DIRECT);
#endif
#endif
}

DirectFile::~DirectFile() {
  if (direct_fd_ >= 0) close(direct_fd_);
}

int DirectFile::read(uint64_t offset, uint64_t n, uint8_t *room, const uint8_t **at) const {
  if (!direct()) {
    *at = room;
    return file_->read(offset, room, n);
  }
  const uint64_t begin = offset / DIRECT_ALIGN * DIRECT_ALIGN, end = offset + n;
  *at = room + (offset - begin);
  const uint64_t want = (end + DIRECT_ALIGN - 1) / DIRECT_ALIGN * DIRECT_ALIGN - begin;
  uint64_t got = 0;
  while (begin + got < end) {
    const ssize_t r = pread(direct_fd_, room + got, want - got, off_t(begin + got));
    if (r < 0 && errno == EINTR) continue;
    if (r < 0 && errno == EINVAL && got == 0) {
      refused_.store(true);
      return read(offset, n, room, at);
    }
    if (r < 0) return errno;
    // A short read ends at the file's end, or in the middle of a block where the next one may not begin.
    const uint64_t whole = uint64_t(r) / DIRECT_ALIGN * DIRECT_ALIGN;
    if (begin + got + uint64_t(r) >= end) return 0;
    if (whole == 0) return ENODATA;
    got += whole;
  }
  return 0;
}

}  // namespace bl
