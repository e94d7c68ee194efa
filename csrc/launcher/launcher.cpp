// launcher.cpp: the head of the one-file build. Behind this ELF lie the Deno binary, the program's bundle and the native
// libraries; the first start unpacks them into the user's cache folder, keyed by content, and every start executes them from there.
//
// Layout of the file, written by scripts/compile.ts:
//   this ELF | file contents, one after the other | index | trailer
//   index    per file: u64 offset, u64 size, u32 mode, u32 name length, name
//   trailer  (64 bytes) "BLOOMPK1", u64 index offset, u64 n_files, 32 hex digits of the contents' hash, 8 zero bytes
//
// An interrupted first start leaves only a folder under a temporary name: unpacking ends with a rename.
// Nothing but libc is used.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

namespace {

constexpr size_t TRAILER = 64;
constexpr size_t HASH = 32;
constexpr uint64_t MAX_FILES = 64;
constexpr uint32_t MAX_NAME = 256;

[[noreturn]] void fail(const char *what, const char *where) {
  fprintf(stderr, "error: bloomery cannot start: %s %s: %s [launch.failed]\n", what, where, strerror(errno));
  exit(1);
}

[[noreturn]] void damaged() {
  fprintf(stderr, "error: bloomery cannot start: the file is damaged, download it again [launch.damaged]\n");
  exit(1);
}

void read_at(int fd, void *to, size_t n, uint64_t offset) {
  char *p = static_cast<char *>(to);
  while (n > 0) {
    const ssize_t got = pread(fd, p, n, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) damaged();
    p += got;
    n -= static_cast<size_t>(got);
    offset += static_cast<uint64_t>(got);
  }
}

// A folder that only this user can write to: what is executed from it was put there by this user.
bool private_folder(const char *path) {
  if (mkdir(path, 0700) != 0 && errno != EEXIST) return false;
  struct stat st;
  if (lstat(path, &st) != 0 || !S_ISDIR(st.st_mode)) return false;
  return st.st_uid == geteuid() && (st.st_mode & 022) == 0 && access(path, W_OK | X_OK) == 0;
}

// $XDG_CACHE_HOME/bloomery, $HOME/.cache/bloomery, or a private folder under the temporary one.
bool cache_folder(char *out, size_t n) {
  const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  char parent[PATH_MAX];
  if (xdg && xdg[0] == '/') {
    snprintf(parent, sizeof parent, "%s", xdg);
    mkdir(parent, 0700);
    snprintf(out, n, "%s/bloomery", parent);
    if (private_folder(out)) return true;
  }
  if (home && home[0] == '/') {
    snprintf(parent, sizeof parent, "%s/.cache", home);
    mkdir(parent, 0700);
    snprintf(out, n, "%s/bloomery", parent);
    if (private_folder(out)) return true;
  }
  const char *tmp = getenv("TMPDIR");
  snprintf(out, n, "%s/bloomery-%u", tmp && tmp[0] == '/' ? tmp : "/tmp", static_cast<unsigned>(geteuid()));
  return private_folder(out);
}

void copy_out(int from, uint64_t offset, uint64_t size, const char *path, uint32_t mode) {
  const int to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode & 0700);
  if (to < 0) fail("cannot write", path);
  static char buffer[1 << 20];
  while (size > 0) {
    const size_t n = size < sizeof buffer ? static_cast<size_t>(size) : sizeof buffer;
    read_at(from, buffer, n, offset);
    for (size_t done = 0; done < n;) {
      const ssize_t w = write(to, buffer + done, n - done);
      if (w < 0 && errno == EINTR) continue;
      if (w < 0) fail("cannot write", path);
      done += static_cast<size_t>(w);
    }
    offset += n;
    size -= n;
  }
  if (fsync(to) != 0 || close(to) != 0) fail("cannot write", path);
}

void remove_folder(const char *path) {
  if (DIR *d = opendir(path)) {
    while (const dirent *e = readdir(d)) {
      if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
      char child[PATH_MAX];
      snprintf(child, sizeof child, "%s/%s", path, e->d_name);
      unlink(child);
    }
    closedir(d);
  }
  rmdir(path);
}

void unpack(int self, uint64_t index, uint64_t n_files, uint64_t end, const char *folder) {
  char temporary[PATH_MAX];
  snprintf(temporary, sizeof temporary, "%s.%ld", folder, static_cast<long>(getpid()));
  remove_folder(temporary);
  if (mkdir(temporary, 0700) != 0) fail("cannot make folder", temporary);
  for (uint64_t i = 0; i < n_files; i++) {
    unsigned char head[24];
    if (index + sizeof head > end) damaged();
    read_at(self, head, sizeof head, index);
    uint64_t offset, size;
    uint32_t mode, n_name;
    memcpy(&offset, head, 8);
    memcpy(&size, head + 8, 8);
    memcpy(&mode, head + 16, 4);
    memcpy(&n_name, head + 20, 4);
    if (n_name == 0 || n_name > MAX_NAME || offset > end || size > end - offset) damaged();
    char name[MAX_NAME + 1];
    read_at(self, name, n_name, index + sizeof head);
    name[n_name] = 0;
    if (strchr(name, '/') || name[0] == '.') damaged();
    index += sizeof head + n_name;
    char path[PATH_MAX + MAX_NAME + 2];
    snprintf(path, sizeof path, "%s/%s", temporary, name);
    copy_out(self, offset, size, path, mode);
  }
  // Another start may have finished first: then its folder stays and ours goes.
  if (rename(temporary, folder) != 0) {
    const int why = errno;
    remove_folder(temporary);
    if (why != EEXIST && why != ENOTEMPTY) {
      errno = why;
      fail("cannot make folder", folder);
    }
  }
}

}  // namespace

int main(int argc, char **argv) {
  const int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  if (self < 0) fail("cannot open", "/proc/self/exe");
  const off_t size = lseek(self, 0, SEEK_END);
  if (size < static_cast<off_t>(TRAILER)) damaged();
  unsigned char trailer[TRAILER];
  const uint64_t end = static_cast<uint64_t>(size) - TRAILER;
  read_at(self, trailer, TRAILER, end);
  if (memcmp(trailer, "BLOOMPK1", 8) != 0) damaged();
  uint64_t index, n_files;
  memcpy(&index, trailer + 8, 8);
  memcpy(&n_files, trailer + 16, 8);
  char hash[HASH + 1];
  memcpy(hash, trailer + 24, HASH);
  hash[HASH] = 0;
  if (index > end || n_files > MAX_FILES || strspn(hash, "0123456789abcdef") != HASH) damaged();

  char cache[PATH_MAX], folder[PATH_MAX];
  if (!cache_folder(cache, sizeof cache - HASH - 2)) fail("cannot write to", cache);
  if (snprintf(folder, sizeof folder, "%s/%s", cache, hash) >= static_cast<int>(sizeof folder)) damaged();
  struct stat st;
  if (stat(folder, &st) != 0) unpack(self, index, n_files, end, folder);

  char deno[PATH_MAX + 16], bundle[PATH_MAX + 16], deno_dir[PATH_MAX + 16];
  snprintf(deno, sizeof deno, "%s/deno", folder);
  snprintf(bundle, sizeof bundle, "%s/bundle.js", folder);
  snprintf(deno_dir, sizeof deno_dir, "%s/deno-dir", cache);
  setenv("BLOOMERY_LIB_DIR", folder, 1);
  setenv("DENO_DIR", deno_dir, 1);
  setenv("DENO_NO_UPDATE_CHECK", "1", 1);
  setenv("DENO_NO_PACKAGE_JSON", "1", 1);

  // --no-config leaves out deno.json's "unstable", so its feature is named here.
  static const char *const HEAD[] = {"bloomery",  "run",           "--allow-all", "--no-config",
                                     "--no-lock", "--cached-only", "--quiet",     "--unstable-no-legacy-abort"};
  constexpr size_t N_HEAD = sizeof HEAD / sizeof *HEAD;
  char **args = static_cast<char **>(calloc(N_HEAD + static_cast<size_t>(argc) + 2, sizeof(char *)));
  if (!args) fail("cannot allocate", "arguments");
  size_t n = 0;
  for (const char *a : HEAD) args[n++] = const_cast<char *>(a);
  args[n++] = bundle;
  for (int i = 1; i < argc; i++) args[n++] = argv[i];
  execv(deno, args);
  fail("cannot execute", deno);
}
