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

  // Copies n bytes from offset on. 0, or an errno: ENODATA where the file ends before. Throws nothing: threads of a pool call it.
  int read(uint64_t offset, uint8_t *out, uint64_t n) const;
  // Tells the system that these bytes will be wanted.
  void expect(uint64_t offset, uint64_t n) const;

 private:
  File() = default;
  std::string path_;
  int fd_ = -1;
  const uint8_t *data_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace bl
