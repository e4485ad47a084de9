#include <c10/core/Allocator.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "tests/training/torch_on.h"

namespace macaw::training {

BackendChoice TorchChoice() { return {.name = "torch"}; }

namespace {

// Memory for LibTorch, counted from the first question on.
class Counting final : public c10::Allocator {
 public:
  static Counting& Get() {
    static Counting* const counting = [] {
      auto* const made = new Counting();
      c10::SetAllocator(c10::DeviceType::CPU, made, /*priority=*/255);
      return made;
    }();
    return *counting;
  }

  void Begin() {
    most_ = now_;
    begin_ = now_;
  }
  size_t most() const { return most_ - begin_; }

  c10::DataPtr allocate(size_t bytes) override {
    auto* const block = static_cast<std::byte*>(::operator new(bytes + kAlign, kAligned));
    std::memcpy(block, &bytes, sizeof(bytes));
    now_ += bytes;
    most_ = std::max(most_, now_);
    return {block + kAlign, block + kAlign, &Free, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static constexpr size_t kAlign = 64;  // the size of a block is in front of it
  static constexpr std::align_val_t kAligned{kAlign};

  static void Free(void* data) {
    std::byte* const block = static_cast<std::byte*>(data) - kAlign;
    size_t bytes = 0;
    std::memcpy(&bytes, block, sizeof(bytes));
    Get().now_ -= bytes;
    ::operator delete(block, kAligned);
  }

  size_t now_ = 0, most_ = 0, begin_ = 0;
};

}  // namespace

void CountTensorBytes() { Counting::Get().Begin(); }
size_t MostTensorBytes() { return Counting::Get().most(); }

}  // namespace macaw::training
