#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/files.h"
#include "core/vector.h"

namespace macaw {

// The safetensors format: an 8-byte little-endian header length, a JSON header, raw tensors. Models
// and prepared data are stored in it, because Python, Rust and C++ can read it and it can be mapped
// without a copy.
struct TensorRef {
  std::string dtype;  // "F32", "F64", "U8", "I32", "I64", ...
  std::vector<uint64_t> shape;
  std::span<const std::byte> bytes;
  uint64_t elements() const;
};

// A mapped safetensors file. All offsets, sizes and overlaps are checked when it is opened.
// Thread-safe.
class SafetensorsFile {
 public:
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);
  // The same checks over bytes in memory, which the caller must keep alive. `name` is used in
  // messages.
  static absl::StatusOr<SafetensorsFile> Parse(std::span<const std::byte> bytes,
                                               const std::string& name);

  const std::map<std::string, TensorRef>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // Errors name the file and the tensor. `dtype` "" accepts any.
  absl::StatusOr<TensorRef> Get(const std::string& name, absl::string_view dtype) const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  MappedFile file_;
  std::map<std::string, TensorRef> tensors_;
  std::map<std::string, std::string> metadata_;
};

// A tensor of a file to be written.
struct TensorSize {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
  uint64_t bytes = 0;
};
// The beginning of a file whose data are these tensors, one after another. Its length is a multiple
// of 64 bytes.
std::string SafetensorsHeader(const std::vector<TensorSize>& tensors,
                              const std::map<std::string, std::string>& metadata);

struct TensorToWrite {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
  std::span<const std::byte> bytes;
};

// Writes a file atomically and durably (AtomicWriteFile), with the tensors in the given order. The
// data begins at a multiple of 64 bytes, and so does every tensor if the sizes before it allow
// that.
absl::Status WriteSafetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                              const std::map<std::string, std::string>& metadata);

// The tensors of a model, a view each: of every entry of the layout one of that name.
std::vector<TensorToWrite> TensorsOf(ConstVectorView model);
// DigestOfValues of the model with these tensors, which are in the order of its layout.
Digest DigestOfTensors(const std::vector<TensorToWrite>& tensors);

// Writes a model: each entry of the layout becomes a tensor of that name.
absl::Status WriteModel(const std::string& path, ConstVectorView model,
                        const std::map<std::string, std::string>& metadata);
// Reads a model into the layout. Missing or extra tensors and other shapes are errors that name the
// tensor. F32 and F64 are converted into each other where the layout has the other dtype.
absl::StatusOr<FlatVector> ReadModel(const std::string& path, LayoutPtr layout);

}  // namespace macaw
