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

// The safetensors format (an 8-byte little-endian header length, a JSON header, raw tensors): what
// models and prepared data are stored in, because Python, Rust and C++ open it and it can be mapped
// without a copy.
struct TensorRef {
  std::string dtype;  // "F32", "F64", "U8", "I32", "I64", ...
  std::vector<uint64_t> shape;
  std::span<const std::byte> bytes;
  uint64_t elements() const;
};

// A mapped safetensors file. Every offset, size and overlap is checked before anything is handed
// out. Thread-safe.
class SafetensorsFile {
 public:
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);
  // The same checks over bytes that the caller keeps alive (`name` is used in messages).
  static absl::StatusOr<SafetensorsFile> Parse(std::span<const std::byte> bytes,
                                               const std::string& name);

  const std::map<std::string, TensorRef>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // Errors name the file and the tensor. `dtype` is "" for any.
  absl::StatusOr<TensorRef> Get(const std::string& name, absl::string_view dtype) const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  MappedFile file_;
  std::map<std::string, TensorRef> tensors_;
  std::map<std::string, std::string> metadata_;
};

struct TensorToWrite {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
  std::span<const std::byte> bytes;
};

// Data begins on a 64-byte boundary of the file and so does every tensor whose predecessors' sizes
// allow it; the order given is kept. Atomic and durable (AtomicWriteFile).
absl::Status WriteSafetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                              const std::map<std::string, std::string>& metadata);

// A model: every entry of the layout as a tensor of its name.
absl::Status WriteModel(const std::string& path, ConstVectorView model,
                        const std::map<std::string, std::string>& metadata);
// Reads a model into the layout; missing, extra or differently shaped tensors are refused by name.
// F32 and F64 are converted into each other when the layout's dtype differs.
absl::StatusOr<FlatVector> ReadModel(const std::string& path, LayoutPtr layout);

}  // namespace macaw
