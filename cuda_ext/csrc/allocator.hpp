// Allocators that hand out ranges of an arena: BuddyAllocator and BestFitAllocator behind one interface.
//
// They only do arithmetic on offsets; the memory itself (a shared segment, a symmetric heap) belongs to somebody
// else, so the same code serves host and device arenas. An arena has one owner and only the owner allocates:
// no locks here, the caller serialises (in Python the GIL does).
//
// Why two: the papers (LegoDiffusion, arXiv 2604.08123; ServerlessT2I, arXiv 2607.26566) use a buddy allocator,
// but with tensors of a diffusion pipeline rounding up to powers of two leaves a third of the arena unusable;
// best fit with coalescing uses nearly all of it. tests/cuda_ext/test_usable_share.py measures both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace nodeloom {

// Every block starts at a multiple of this and takes a multiple of it. 256 bytes: the alignment of cudaMalloc,
// so kernels may use their widest loads on arena memory too.
inline constexpr std::size_t kUnitBytes = 256;

// A request that no free range can hold now; freeing blocks may help. The allocator is as before the call.
class ArenaFull : public std::runtime_error {
 public:
  ArenaFull(std::size_t nbytes, std::size_t largest_free_bytes)
      : std::runtime_error("no free range of " + std::to_string(nbytes) + " bytes; the largest has " +
                           std::to_string(largest_free_bytes)) {}
};

// What both allocators promise. All sizes and offsets are in bytes.
class Allocator {
 public:
  Allocator() = default;
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;
  virtual ~Allocator() = default;

  // Take a block of at least `nbytes` and return its offset. Of ranges that fit equally well the lowest is taken:
  // low addresses are the ones already touched, and a first touch is several times dearer than a warm one.
  // Throws ArenaFull, and std::invalid_argument for zero bytes (an empty tensor needs no block).
  virtual std::size_t alloc(std::size_t nbytes) = 0;

  // Give back the block at `offset`. Throws std::invalid_argument if no block starts there (freed twice, or never
  // taken): a wrong free would hand the same memory to two tensors.
  virtual void free(std::size_t offset) = 0;

  virtual std::size_t used_bytes() const = 0;          // held by blocks, rounding included
  virtual std::size_t capacity_bytes() const = 0;      // all of it, in whole units
  virtual std::size_t largest_free_bytes() const = 0;  // the largest alloc() that would succeed now
  virtual std::size_t num_blocks() const = 0;          // taken and not given back

 protected:
  static std::size_t checked_capacity(std::size_t capacity_bytes) {
    // The upper end keeps every power of two that the buddies compare with inside 64 bits.
    if (capacity_bytes < kUnitBytes || capacity_bytes > static_cast<std::size_t>(PTRDIFF_MAX)) {
      throw std::invalid_argument("an arena can't have " + std::to_string(capacity_bytes) + " bytes; the least is " +
                                  std::to_string(kUnitBytes));
    }
    return capacity_bytes / kUnitBytes * kUnitBytes;
  }

  // `nbytes` in whole units. Looks at the capacity first: rounding a huge request up would wrap around to a small one.
  std::size_t checked_request(std::size_t nbytes) const {
    if (nbytes == 0) {
      throw std::invalid_argument("a block of 0 bytes was asked for");
    }
    if (nbytes > capacity_bytes()) {
      throw ArenaFull(nbytes, largest_free_bytes());
    }
    return (nbytes + kUnitBytes - 1) / kUnitBytes * kUnitBytes;
  }

  [[noreturn]] static void refuse_free(std::size_t offset) {
    throw std::invalid_argument("no block starts at offset " + std::to_string(offset));
  }
};

// Binary buddies: blocks are powers of two units; a freed block merges with its buddy (offset XOR size) for as long
// as that is free too. An arena whose size isn't a power of two is cut into falling powers of two at the start;
// such a root's buddy would be of the same size and doesn't exist, so roots never merge with each other.
// Source: Knowlton, A fast storage allocator, CACM 8(10), 1965.
class BuddyAllocator final : public Allocator {
 public:
  explicit BuddyAllocator(std::size_t capacity_bytes) : capacity_(checked_capacity(capacity_bytes)) {
    while (block_bytes(free_.size()) <= capacity_) {
      free_.emplace_back();
    }
    std::size_t offset = 0;
    for (std::size_t order = free_.size(); order-- > 0;) {
      if (capacity_ & block_bytes(order)) {
        free_[order].insert(offset);
        offset += block_bytes(order);
      }
    }
  }

  std::size_t alloc(std::size_t nbytes) override {
    const std::size_t wanted = order_of(checked_request(nbytes));
    std::size_t order = wanted;
    while (order < free_.size() && free_[order].empty()) {
      ++order;
    }
    if (order >= free_.size()) {
      throw ArenaFull(nbytes, largest_free_bytes());
    }
    const std::size_t offset = *free_[order].begin();
    used_.emplace(offset, wanted);
    free_[order].erase(free_[order].begin());
    while (order > wanted) {  // keep the lower half, the upper ones stay free
      --order;
      free_[order].insert(offset + block_bytes(order));
    }
    used_bytes_ += block_bytes(wanted);
    return offset;
  }

  void free(std::size_t offset) override {
    const auto block = used_.find(offset);
    if (block == used_.end()) {
      refuse_free(offset);
    }
    std::size_t order = block->second;
    used_.erase(block);
    used_bytes_ -= block_bytes(order);
    while (free_[order].erase(offset ^ block_bytes(order)) > 0) {
      offset &= ~block_bytes(order);
      ++order;
    }
    free_[order].insert(offset);
  }

  std::size_t used_bytes() const override { return used_bytes_; }
  std::size_t capacity_bytes() const override { return capacity_; }
  std::size_t num_blocks() const override { return used_.size(); }

  std::size_t largest_free_bytes() const override {
    for (std::size_t order = free_.size(); order-- > 0;) {
      if (!free_[order].empty()) {
        return block_bytes(order);
      }
    }
    return 0;
  }

 private:
  static std::size_t block_bytes(std::size_t order) { return kUnitBytes << order; }

  static std::size_t order_of(std::size_t nbytes) {
    std::size_t order = 0;
    while (block_bytes(order) < nbytes) {
      ++order;
    }
    return order;
  }

  std::size_t capacity_;
  std::size_t used_bytes_ = 0;
  std::vector<std::set<std::size_t>> free_;             // by order: offsets of free blocks, lowest first
  std::unordered_map<std::size_t, std::size_t> used_;  // offset -> order
};

// Best fit: the smallest free range that holds the request; neighbours coalesce at once, so two free ranges never
// touch. O(log n). Every step that needs memory of its own comes before the first change: a failed call changes nothing.
class BestFitAllocator final : public Allocator {
 public:
  explicit BestFitAllocator(std::size_t capacity_bytes) : capacity_(checked_capacity(capacity_bytes)) {
    ranges_.emplace(0, Range{capacity_, true});
    holes_.emplace(capacity_, 0);
  }

  std::size_t alloc(std::size_t nbytes) override {
    const std::size_t size = checked_request(nbytes);
    const auto hole = holes_.lower_bound({size, 0});
    if (hole == holes_.end()) {
      throw ArenaFull(nbytes, largest_free_bytes());
    }
    const auto [hole_size, offset] = *hole;
    if (hole_size == size) {
      holes_.erase(hole);
    } else {
      ranges_.emplace(offset + size, Range{hole_size - size, true});
      resize_hole(hole, hole_size - size, offset + size);
    }
    ranges_[offset] = Range{size, false};
    used_bytes_ += size;
    ++num_blocks_;
    return offset;
  }

  void free(std::size_t offset) override {
    const auto block = ranges_.find(offset);
    if (block == ranges_.end() || block->second.is_free) {
      refuse_free(offset);
    }
    const std::size_t size = block->second.size;
    const auto next = std::next(block);
    const bool joins_next = next != ranges_.end() && next->second.is_free;
    const bool joins_previous = block != ranges_.begin() && std::prev(block)->second.is_free;
    if (joins_previous) {
      const auto previous = std::prev(block);
      const auto hole = holes_.find({previous->second.size, previous->first});
      previous->second.size += size;
      if (joins_next) {
        holes_.erase({next->second.size, next->first});
        previous->second.size += next->second.size;
        ranges_.erase(next);
      }
      resize_hole(hole, previous->second.size, previous->first);
      ranges_.erase(block);
    } else if (joins_next) {
      const auto hole = holes_.find({next->second.size, next->first});
      block->second = Range{size + next->second.size, true};
      ranges_.erase(next);
      resize_hole(hole, block->second.size, offset);
    } else {
      holes_.emplace(size, offset);
      block->second.is_free = true;
    }
    used_bytes_ -= size;
    --num_blocks_;
  }

  std::size_t used_bytes() const override { return used_bytes_; }
  std::size_t capacity_bytes() const override { return capacity_; }
  std::size_t num_blocks() const override { return num_blocks_; }
  std::size_t largest_free_bytes() const override { return holes_.empty() ? 0 : holes_.rbegin()->first; }

 private:
  struct Range {
    std::size_t size;
    bool is_free;
  };
  using Holes = std::set<std::pair<std::size_t, std::size_t>>;  // (size, offset): the best fit is a lower_bound

  // Moves the set's own node to its new place: needs no memory, so it can't fail half-way.
  void resize_hole(Holes::const_iterator hole, std::size_t size, std::size_t offset) {
    auto node = holes_.extract(hole);
    node.value() = {size, offset};
    holes_.insert(std::move(node));
  }

  std::size_t capacity_;
  std::size_t used_bytes_ = 0;
  std::size_t num_blocks_ = 0;
  std::map<std::size_t, Range> ranges_;  // by offset; together they cover the whole arena without gaps
  Holes holes_;
};

}  // namespace nodeloom
