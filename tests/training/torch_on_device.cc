// A device of LibTorch's for tests, "privateuseone:0". Its memory is the host's under addresses that
// no processor can read, so whoever reads or writes a tensor of the device in place crashes. Its
// operations are the host's (LibTorch's fallback), but for those that make tensors and views, and
// refuse tensors of the host beside its own. So it finds what an NVIDIA GPU would, but not speed.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "tests/training/torch_on.h"

namespace macaw::training {

BackendChoice TorchChoice() { return {.name = "torch", .devices = {"privateuseone:0"}}; }

namespace {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
const c10::Device kDevice(kType, 0);

// ---- memory

// Between an address of the device and the host's for the same byte. A bit that no address of a
// user's has.
void* Other(const void* address) {
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(address) ^ (uintptr_t{1} << 62));
}

class Memory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &Free, kDevice};
    void* const real = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    return {Other(real), real, &Free, kDevice};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(Other(to), Other(from), bytes);
  }

 private:
  static void Free(void* real) { std::free(real); }
};

Memory& TheMemory() {
  static Memory memory;
  return memory;
}

// The same numbers as a tensor of the host.
at::Tensor Host(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  const auto options = at::dtype(tensor.scalar_type());
  if (tensor.numel() == 0) return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  return at::from_blob(Other(tensor.const_data_ptr()), tensor.sizes(), tensor.strides(), options);
}

// ---- what LibTorch asks of a device

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override {
    return c10::Stream(c10::Stream::DEFAULT, kDevice);
  }
  c10::Stream exchangeStream(c10::Stream) const override { return getStream(kDevice); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  at::Device getDeviceFromPtr(void*) const override { return kDevice; }
};

[[maybe_unused]] const bool kRegistered = [] {
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  c10::SetAllocator(kType, &TheMemory());
  return true;
}();

// ---- operations

at::Tensor Empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type,
                 std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(sizes, &TheMemory(),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(type), format);
}

at::Tensor EmptyStrided(at::IntArrayRef sizes, at::IntArrayRef strides,
                        std::optional<at::ScalarType> type, std::optional<at::Layout>,
                        std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(sizes, strides, &TheMemory(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(type));
}

at::Tensor CopyFrom(const at::Tensor& from, const at::Tensor& to, bool) {
  if (to.numel() > 0) Host(to).copy_(Host(from));
  return to;
}

const at::Tensor& Resize(const at::Tensor& tensor, at::IntArrayRef sizes,
                         std::optional<at::MemoryFormat>) {
  at::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(sizes);
  const size_t bytes =
      static_cast<size_t>(tensor.numel() + tensor.storage_offset()) * tensor.element_size();
  if (bytes > tensor.storage().nbytes()) {
    tensor.storage().set_data_ptr_noswap(TheMemory().allocate(bytes));
    tensor.storage().set_nbytes(bytes);
  }
  return tensor;
}

at::Tensor CopyFromAndResize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) Resize(to, from.sizes(), {});
  return CopyFrom(from, to, false);
}

void CheckPlace(const c10::OperatorHandle& op, const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device() == kDevice) return;
  // One number of the host may stand beside tensors of a device.
  if (tensor.dim() == 0) return;
  TORCH_CHECK(false, op.schema().name(), " was given a tensor on ", tensor.device(),
              " beside one on the device");
}

void Fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  for (const c10::IValue& value : torch::jit::last(*stack, op.schema().arguments().size())) {
    if (value.isTensor()) CheckPlace(op, value.toTensor());
    if (value.isTensorList())
      for (const at::Tensor& tensor : value.toTensorVector()) CheckPlace(op, tensor);
  }
  at::native::cpu_fallback(op, stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &Empty);
  library.impl("empty_strided", &EmptyStrided);
  library.impl("_copy_from", &CopyFrom);
  library.impl("_copy_from_and_resize", &CopyFromAndResize);
  library.impl("resize_", &Resize);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", &at::native::view);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("unfold", &at::native::unfold);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&Fallback>());
}

}  // namespace macaw::training
