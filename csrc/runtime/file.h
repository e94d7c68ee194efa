// file.h: a file opened for reading and mapped whole.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace bl {

class File {
 public:
  // Opens and maps `path`.   fails with BL_ERR_IO
  static std::shared_ptr<const File> open(const char *path);
  ~File();
  File(const File &) = delete;
  File &operator=(const File &) = delete;

  const uint8_t *data() const { return data_; }
  uint64_t size() const { return size_; }
  int fd() const { return fd_; }  // for backends that read past the page cache
  const std::string &path() const { return path_; }

 private:
  File() = default;
  std::string path_;
  int fd_ = -1;
  const uint8_t *data_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace bl
