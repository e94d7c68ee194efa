// file.cpp: read-only file mappings (POSIX).
#include "file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "failure.h"

namespace bl {

std::shared_ptr<const File> File::open(const char *path) {
  std::shared_ptr<File> file(new File);
  file->path_ = path;
  file->fd_ = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file->fd_ < 0) fail(BL_ERR_IO, "Cannot open %.300s: %s", path, strerror(errno));
  struct stat st;
  if (fstat(file->fd_, &st) != 0) fail(BL_ERR_IO, "Cannot stat %.300s: %s", path, strerror(errno));
  if (!S_ISREG(st.st_mode)) fail(BL_ERR_IO, "Cannot map %.300s: it is not a regular file", path);
  file->size_ = uint64_t(st.st_size);
  if (file->size_ > 0) {
    void *p = mmap(nullptr, file->size_, PROT_READ, MAP_SHARED, file->fd_, 0);
    if (p == MAP_FAILED) fail(BL_ERR_IO, "Cannot map %.300s: %s", path, strerror(errno));
    file->data_ = static_cast<const uint8_t *>(p);
  }
  return file;
}

File::~File() {
  if (data_ != nullptr) munmap(const_cast<uint8_t *>(data_), size_);
  if (fd_ >= 0) close(fd_);
}

int File::read(uint64_t offset, uint8_t *out, uint64_t n) const {
  while (n > 0) {
    const ssize_t got = pread(fd_, out, n, off_t(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) return ENODATA;
    offset += uint64_t(got), out += got, n -= uint64_t(got);
  }
  return 0;
}

void File::expect(uint64_t offset, uint64_t n) const {
#if defined(POSIX_FADV_WILLNEED)
  posix_fadvise(fd_, off_t(offset), off_t(n), POSIX_FADV_WILLNEED);
#else
  (void)offset, (void)n;
#endif
}

}  // namespace bl
