// A device of LibTorch's for tests, "test:0". Its memory is the host's under addresses that
// no processor can read, so whoever reads or writes a tensor of the device in place crashes. Its
// operations are the host's (LibTorch's fallback), but for those that make tensors and views, and
// refuse tensors of the host beside its own. A tensor is of the stream on which it was made, and of
// no use on another one: what a GPU would do there is a matter of time. So it finds what an NVIDIA
// GPU would, but not speed.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/training/torch_on.h"

namespace macaw::training {

BackendChoice TorchChoice() { return {.name = "torch", .devices = {"test:0"}}; }

namespace {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
const c10::Device kDevice(kType, 0);

// ---- memory

// Between an address of the device and the host's for the same byte. A bit that no address of a
// user's has.
void* Other(const void* address) {
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(address) ^ (uintptr_t{1} << 62));
}

// ---- streams

thread_local c10::StreamId the_stream = 0;  // that of this thread
std::atomic<c10::StreamId> last_stream = 0;

c10::Stream StreamOf(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, kDevice, id); }

// In front of each block of memory.
struct Head {
  size_t bytes = 0;
  c10::StreamId stream = 0;
};

class Memory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &Free, kDevice};
    auto* const block = static_cast<std::byte*>(std::aligned_alloc(kHead, kHead + Padded(bytes)));
    new (block) Head{.bytes = bytes, .stream = the_stream};
    const size_t now = now_ += bytes;
    size_t most = most_;
    while (most < now && !most_.compare_exchange_weak(most, now)) {
    }
    return {Other(block + kHead), block, &Free, kDevice};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(Other(to), Other(from), bytes);
  }

  void Begin() {
    begin_ = now_.load();
    most_ = begin_;
  }
  size_t most() const { return most_ - begin_; }

 private:
  static constexpr size_t kHead = 64;
  static_assert(sizeof(Head) <= kHead);

  static size_t Padded(size_t bytes) { return (bytes + 63) / 64 * 64; }
  static void Free(void* block) {
    if (block == nullptr) return;
    now_ -= static_cast<const Head*>(block)->bytes;
    std::free(block);
  }

  inline static std::atomic<size_t> now_ = 0;
  std::atomic<size_t> most_ = 0;
  size_t begin_ = 0;
};

Memory& TheMemory() {
  static Memory memory;
  return memory;
}

}  // namespace

void CountTensorBytes() { TheMemory().Begin(); }
size_t MostTensorBytes() { return TheMemory().most(); }

namespace {

// The same numbers as a tensor of the host, for an operation on this thread's stream.
at::Tensor Host(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  if (const void* const block = tensor.storage().data_ptr().get_context(); block != nullptr) {
    const c10::StreamId stream = static_cast<const Head*>(block)->stream;
    TORCH_CHECK(stream == the_stream, "a tensor of stream ", stream, " is used on stream ",
                the_stream);
  }
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
  c10::Stream getStream(c10::Device) const override { return StreamOf(the_stream); }
  c10::Stream getDefaultStream(c10::Device) const override { return StreamOf(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override {
    return StreamOf(++last_stream);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return StreamOf(std::exchange(the_stream, stream.id()));
  }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct DeviceHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  at::Device getDeviceFromPtr(void*) const override { return kDevice; }
};

[[maybe_unused]] const bool kRegistered = [] {
  c10::register_privateuse1_backend("test");
  static DeviceHooks hooks;
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

at::Tensor There(const at::Tensor& here) { return here.defined() ? here.to(kDevice) : here; }

std::optional<at::Tensor> HostOf(const std::optional<at::Tensor>& tensor) {
  if (!tensor.has_value() || !tensor->defined()) return std::nullopt;
  return Host(*tensor);
}

// The fallback copies what an operation's schema does not call changed, and this one changes the
// running statistics.
std::tuple<at::Tensor, at::Tensor, at::Tensor> BatchNorm(
    const at::Tensor& x, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& mean,
    const std::optional<at::Tensor>& variance, bool training, double momentum, double epsilon) {
  const auto [y, saved_mean, saved_deviation] =
      at::native_batch_norm(Host(x), HostOf(weight), HostOf(bias), HostOf(mean), HostOf(variance),
                            training, momentum, epsilon);
  return {There(y), There(saved_mean), There(saved_deviation)};
}

// Those of a device that LibTorch does not know have no fallback.
at::Tensor Convolution(const at::Tensor& x, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                       at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, int64_t groups) {
  return There(at::convolution(Host(x), Host(weight), HostOf(bias), stride, padding, dilation,
                               transposed, output_padding, groups));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> ConvolutionBackward(
    const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& weight,
    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
    at::IntArrayRef output_padding, int64_t groups, std::array<bool, 3> wanted) {
  const int64_t outputs = gradient.size(1);
  const auto [gx, gw, gb] = at::convolution_backward(
      Host(gradient), Host(x), Host(weight), at::IntArrayRef(outputs), stride, padding, dilation,
      transposed, output_padding, groups, wanted);
  return {There(gx), There(gw), There(gb)};
}

// Cells of recurrent layers, which a device has in one piece, of operations that it can be
// differentiated through. The last result is what a fused cell keeps for its backward pass.
at::Tensor Biased(const at::Tensor& gates, const std::optional<at::Tensor>& bias) {
  return bias.has_value() && bias->defined() ? gates + *bias : gates;
}

std::tuple<at::Tensor, at::Tensor> GruCell(const at::Tensor& of_input, const at::Tensor& of_state,
                                           const at::Tensor& state,
                                           const std::optional<at::Tensor>& input_bias,
                                           const std::optional<at::Tensor>& state_bias) {
  const std::vector<at::Tensor> i = Biased(of_input, input_bias).chunk(3, 1);
  const std::vector<at::Tensor> h = Biased(of_state, state_bias).chunk(3, 1);
  const at::Tensor reset = at::sigmoid(i[0] + h[0]), keep = at::sigmoid(i[1] + h[1]);
  const at::Tensor fresh = at::tanh(i[2] + reset * h[2]);
  return {(state - fresh) * keep + fresh, at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> LstmCell(
    const at::Tensor& of_input, const at::Tensor& of_state, const at::Tensor& cell,
    const std::optional<at::Tensor>& input_bias, const std::optional<at::Tensor>& state_bias) {
  const std::vector<at::Tensor> gates =
      (Biased(of_input, input_bias) + Biased(of_state, state_bias)).chunk(4, 1);
  const at::Tensor next = at::sigmoid(gates[1]) * cell + at::sigmoid(gates[0]) * at::tanh(gates[2]);
  return {at::sigmoid(gates[3]) * at::tanh(next), next, at::Tensor()};
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
  library.impl("native_batch_norm", &BatchNorm);
  library.impl("convolution_overrideable", &Convolution);
  library.impl("convolution_backward_overrideable", &ConvolutionBackward);
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, library) {
  library.impl("_thnn_fused_gru_cell", &GruCell);
  library.impl("_thnn_fused_lstm_cell", &LstmCell);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&Fallback>());
}

// ---- autocast: of what the models here compute, as LibTorch has it for NVIDIA's GPUs

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  KERNEL_PRIVATEUSEONE(conv1d, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(conv2d, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(conv3d, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(linear, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(matmul, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(addmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(mm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(bmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(baddbmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(_thnn_fused_lstm_cell, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(_thnn_fused_gru_cell, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(scaled_dot_product_attention, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(exp, fp32)
  KERNEL_PRIVATEUSEONE(log, fp32)
  KERNEL_PRIVATEUSEONE(pow, Tensor_Scalar, fp32)
  KERNEL_PRIVATEUSEONE(layer_norm, fp32)
  KERNEL_PRIVATEUSEONE(native_layer_norm, fp32)
  KERNEL_PRIVATEUSEONE(group_norm, fp32)
  KERNEL_PRIVATEUSEONE(softmax, int, fp32_set_opt_dtype)
  KERNEL_PRIVATEUSEONE(log_softmax, int, fp32_set_opt_dtype)
  KERNEL_PRIVATEUSEONE(sum, fp32_set_opt_dtype)
  KERNEL_PRIVATEUSEONE(sum, dim_IntList, fp32_set_opt_dtype)
}

}  // namespace macaw::training
