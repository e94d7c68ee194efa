// lattice_test.cpp: the codebooks' neighbour lists against the checksums that the formats publish for them (csrc/common/grids.json).
#include "../common/lattice.h"

#include <string>

#include "check.h"

namespace bl_test {
namespace {

using namespace bl;

uint32_t rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

// The first 32 bits of the fractional part of the k-th root of the n-th prime: what SHA-256 takes its constants from.
uint32_t root_bits(int n, bool cube) {
  int prime = 1;
  for (int seen = -1; seen < n;) {
    prime++;
    bool ok = true;
    for (int d = 2; d * d <= prime; d++) ok = ok && prime % d != 0;
    if (ok) seen++;
  }
  const long double root = cube ? cbrtl(prime) : sqrtl(prime);
  return uint32_t((root - floorl(root)) * 4294967296.0L);
}

// SHA-256 (FIPS 180-4) in hex.
std::string sha256(std::vector<uint8_t> data) {
  uint32_t h[8], k[64];
  for (int i = 0; i < 8; i++) h[i] = root_bits(i, false);
  for (int i = 0; i < 64; i++) k[i] = root_bits(i, true);
  const uint64_t n_bits = data.size() * 8;
  data.push_back(0x80);
  while (data.size() % 64 != 56) data.push_back(0);
  for (int i = 7; i >= 0; i--) data.push_back(uint8_t(n_bits >> (8 * i)));
  for (size_t at = 0; at < data.size(); at += 64) {
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++) {
      const uint8_t *b = &data[at + size_t(i) * 4];
      w[i] = uint32_t(b[0]) << 24 | uint32_t(b[1]) << 16 | uint32_t(b[2]) << 8 | b[3];
    }
    for (int i = 16; i < 64; i++) {
      const uint32_t a = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
      const uint32_t b = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
      w[i] = w[i - 16] + a + w[i - 7] + b;
    }
    memcpy(s, h, sizeof s);
    for (int i = 0; i < 64; i++) {
      const uint32_t a = rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25);
      const uint32_t t1 = s[7] + a + ((s[4] & s[5]) ^ (~s[4] & s[6])) + k[i] + w[i];
      const uint32_t b = rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22);
      const uint32_t t2 = b + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
      memmove(s + 1, s, 7 * sizeof s[0]);
      s[4] += t1;
      s[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) h[i] += s[i];
  }
  std::string out;
  char text[9];
  for (const uint32_t v : h) {
    snprintf(text, sizeof text, "%08x", v);
    out += text;
  }
  return out;
}

// For every key of valid levels that is no point, in ascending order: the key, the length of its list, the points of the list.
std::string sum_of(const Lattice &lattice, int dim, int bits, int n_level) {
  std::vector<uint8_t> stream;
  const auto put = [&](uint32_t v) {
    stream.push_back(uint8_t(v));
    stream.push_back(uint8_t(v >> 8));
  };
  for (uint32_t key = 0; key < lattice.n_slots; key++) {
    bool valid = true;
    for (int i = 0; i < dim; i++) valid = valid && int(key >> (bits * i) & ((1u << bits) - 1)) < n_level;
    const int32_t slot = lattice.slots[key];
    if (!valid || slot >= 0) continue;  // a point has its index here
    const uint16_t *list = lattice.list(slot);
    uint32_t n = 8 * Lattice::batches(slot);
    while (n > 1 && list[n - 1] == list[n - 2]) n--;  // padding repeats the last
    put(key);
    put(n);
    for (uint32_t i = 0; i < n; i++) put(uint32_t(lattice.slots[list[i]]));
  }
  return sha256(stream);
}

}  // namespace

void lattice_tests() {
  check(sha256({'a', 'b', 'c'}) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "sha256");
  const struct {
    const char *name;
    const Lattice &lattice;
    int dim, bits, n_level;
    const char *sum;
  } cases[] = {
      {"iq2xxs", lattice_iq2xxs(), 8, 2, 3, "60e1323db59d06af6c2163f723298905da756f9deb751f06d4ad0bcfd076feeb"},
      {"iq2xs", lattice_iq2xs(), 8, 2, 3, "ad638744f2f6fe1513238f6974b396b6b5827178a72f0539460aa8d2d45f5769"},
      {"iq2s", lattice_iq2s(), 8, 2, 3, "ce25c5e98a2f04b31e8af456c8ae1967187eb70e8384e289ee1411ab91167009"},
      {"iq1s", lattice_iq1s(), 8, 2, 3, "429a6b5118d6c297b3720730707f8f2cd2289a31079ecf72cede23450a730ed8"},
      {"iq3xxs", lattice_iq3xxs(), 4, 3, 8, "af89946c10d1d70cbdf99809c15e31d0b0643b57ce53a6dede5590fc563069c8"},
      {"iq3s", lattice_iq3s(), 4, 3, 8, "1cdbfcc9e687b33a67cb3c8465bb316dfc37e7b1a66ccc4e5adacf21e3e7d28a"},
  };
  for (const auto &c : cases) check(sum_of(c.lattice, c.dim, c.bits, c.n_level) == c.sum, "neighbour lists of", c.name);
}

}  // namespace bl_test
