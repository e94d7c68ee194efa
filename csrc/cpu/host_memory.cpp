// host_memory.cpp: /proc/meminfo, and the limits of control groups, versions 1 and 2.
#include "host_memory.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

namespace bl {
namespace {

// The number in a file; `otherwise` when there is none, as in a limit of "max".
uint64_t number_in(const std::string &path, uint64_t otherwise) {
  FILE *f = fopen(path.c_str(), "r");
  if (f == nullptr) return otherwise;
  unsigned long long n = 0;
  const bool found = fscanf(f, "%llu", &n) == 1;
  fclose(f);
  return found ? n : otherwise;
}

// The number behind a key in a file of "key number" lines; 0 when there is none.
uint64_t stat_in(const std::string &path, const char *key) {
  FILE *f = fopen(path.c_str(), "r");
  if (f == nullptr) return 0;
  char name[128];
  unsigned long long n = 0, found = 0;
  while (fscanf(f, "%127s %llu", name, &n) == 2)
    if (strcmp(name, key) == 0) found = n;
  fclose(f);
  return found;
}

struct Names {
  const char *root, *limit, *use, *file_pages;
};
constexpr Names V1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr Names V2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};

// What a group and those that it is in leave.
uint64_t group_room(const Names &n, std::string group) {
  uint64_t room = UINT64_MAX;
  for (;;) {
    const std::string dir = std::string(n.root) + group + "/";
    const uint64_t limit = number_in(dir + n.limit, UINT64_MAX);
    if (limit < (1ull << 60)) {
      const uint64_t use = number_in(dir + n.use, 0), pages = stat_in(dir + "memory.stat", n.file_pages);
      const uint64_t held = use > pages ? use - pages : 0;
      room = std::min(room, limit > held ? limit - held : 0);
    }
    if (group.empty()) return room;
    group.resize(group.rfind('/'));
  }
}

}  // namespace

uint64_t meminfo(const char *key) {
  FILE *f = fopen("/proc/meminfo", "r");
  if (f == nullptr) return 0;
  char line[256];
  unsigned long long kib = 0;
  const size_t n = strlen(key);
  while (fgets(line, sizeof line, f) != nullptr)
    if (strncmp(line, key, n) == 0 && sscanf(line + n, ": %llu", &kib) == 1) break;
  fclose(f);
  return uint64_t(kib) * 1024;
}

uint64_t host_free_bytes() {
  uint64_t free = meminfo("MemAvailable");
  FILE *f = fopen("/proc/self/cgroup", "r");
  if (f == nullptr) return free;
  char line[4096];
  while (fgets(line, sizeof line, f) != nullptr) {
    // number:controllers:/group; version 2 has number 0 and no controllers
    char *names = strchr(line, ':'), *group = names == nullptr ? nullptr : strchr(names + 1, ':');
    if (group == nullptr) continue;
    *group++ = 0, names++;
    group[strcspn(group, "\n")] = 0;
    if (strcmp(group, "/") == 0) *group = 0;
    if (*group != 0 && *group != '/') continue;
    if (*names == 0) free = std::min(free, group_room(V2, group));
    else if (strcmp(names, "memory") == 0) free = std::min(free, group_room(V1, group));
  }
  fclose(f);
  return free;
}

}  // namespace bl
