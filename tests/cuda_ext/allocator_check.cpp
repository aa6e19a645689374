// Drives both allocators at random under AddressSanitizer and UBSan; test_sanitized.py compiles and runs this.
// Each block is filled with its own byte in a real buffer and read back before it is freed: two blocks that
// overlap destroy each other's bytes, and one that leaves the arena is a sanitizer's error.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "allocator.hpp"

namespace {

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      std::fprintf(stderr, "line %d: not true: %s\n", __LINE__, #condition);    \
      std::exit(1);                                                             \
    }                                                                           \
  } while (false)

struct Block {
  std::size_t offset, size;
  unsigned char mark;
};

void release(nodeloom::Allocator& allocator, const std::vector<unsigned char>& arena, const Block& block) {
  const auto begin = arena.begin() + static_cast<std::ptrdiff_t>(block.offset);
  CHECK(std::all_of(begin, begin + static_cast<std::ptrdiff_t>(block.size),
                    [&](unsigned char byte) { return byte == block.mark; }));
  allocator.free(block.offset);
}

template <typename A>
void drive(std::size_t capacity, unsigned seed) {
  std::mt19937 random(seed);
  const std::unique_ptr<nodeloom::Allocator> allocator = std::make_unique<A>(capacity);
  const std::size_t empty_largest = allocator->largest_free_bytes();
  std::vector<unsigned char> arena(allocator->capacity_bytes());
  std::vector<Block> live;
  unsigned refused = 0;
  for (unsigned step = 0; step < 4000; ++step) {
    if (live.empty() || random() % 5 < 3) {
      const std::size_t size = 1 + random() % (random() % 8 == 0 ? 16000 : 700);
      try {
        const Block block{allocator->alloc(size), size, static_cast<unsigned char>(random())};
        std::fill_n(arena.begin() + static_cast<std::ptrdiff_t>(block.offset), size, block.mark);
        live.push_back(block);
      } catch (const nodeloom::ArenaFull&) {
        CHECK(size > 0 && ++refused > 0);
      }
    } else {
      std::swap(live[random() % live.size()], live.back());
      release(*allocator, arena, live.back());
      live.pop_back();
    }
    CHECK(allocator->num_blocks() == live.size());
  }
  CHECK(refused > 0);  // the mix must have reached the end of the arena
  for (const Block& block : live) {
    release(*allocator, arena, block);
  }
  CHECK(allocator->used_bytes() == 0);
  CHECK(allocator->largest_free_bytes() == empty_largest);
  try {
    allocator->free(0);
    CHECK(!"freed twice");
  } catch (const std::invalid_argument&) {
  }
  allocator->alloc(1);  // a block that is still taken at the end must not leak either
}

}  // namespace

int main() {
  for (unsigned seed = 0; seed < 4; ++seed) {
    for (const std::size_t capacity : {65536u, 100000u, 262144u}) {
      drive<nodeloom::BuddyAllocator>(capacity, seed);
      drive<nodeloom::BestFitAllocator>(capacity, seed);
    }
  }
  std::puts("allocators hold");
}
