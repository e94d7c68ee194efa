// direct_file.h: reads of a file that pass the page cache by, where its file system allows that.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "../runtime/file.h"
#include "buffer.h"

namespace bl {

constexpr uint64_t DIRECT_ALIGN = 4096;  // of offsets, lengths and memory of direct reads: no file system asks for more

// Memory of a reader for spans of up to n bytes at any offset.
inline uint64_t direct_room(uint64_t n) { return (n + 2 * DIRECT_ALIGN - 1) / DIRECT_ALIGN * DIRECT_ALIGN; }

class DirectFile {
 public:
  explicit DirectFile(std::shared_ptr<const File> file);
  ~DirectFile();
  DirectFile(const DirectFile &) = delete;
  DirectFile &operator=(const DirectFile &) = delete;

  // Reads n bytes from offset on into `room` (on a page, direct_room(n) bytes); they begin at *at. 0, or an errno: ENODATA where the
  // file ends before. Throws nothing: the threads of a pool call it.
  int read(uint64_t offset, uint64_t n, uint8_t *room, const uint8_t **at) const;

  const File &file() const { return *file_; }
  bool direct() const { return direct_fd_ >= 0 && !refused_.load(); }
  uint64_t drive() const { return drive_; }                    // equal for files on one drive
  const std::string &drive_name() const { return drive_name_; }  // as the system calls it, for messages

 private:
  std::shared_ptr<const File> file_;
  int direct_fd_ = -1;
  mutable std::atomic<bool> refused_{false};  // the file system opens files for direct reads and then does not read
  uint64_t drive_ = 0;
  std::string drive_name_ = "an unknown drive";
};

}  // namespace bl
