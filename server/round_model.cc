#include "server/round_model.h"

#include <filesystem>
#include <fstream>
#include <span>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/safetensors.h"
#include "core/status.h"
#include "proto/fleet/vector_codec.h"

namespace macaw::server {

absl::Status WriteRoundModel(const std::string& run_dir, Round round, const fleet::Blob& model,
                             const LayoutPtr& layout) {
  MACAW_ASSIGN_OR_RETURN(const std::vector<ConstVectorView> vectors,
                         fleet::DecodeVectors(model.bytes->bytes(), std::span(&layout, 1)));
  const ConstVectorView values = vectors.front();
  const size_t width = SizeOf(values.dtype());
  std::vector<TensorSize> sizes;
  for (const LayoutEntry& entry : layout->entries()) {
    sizes.push_back({entry.name,
                     values.dtype() == DType::kF32 ? "F32" : "F64",
                     {entry.shape.begin(), entry.shape.end()},
                     entry.size * width});
  }
  const std::string path = run_dir + "/model.round.safetensors", part = path + ".part";
  std::ofstream file(part, std::ios::binary | std::ios::trunc);
  file << SafetensorsHeader(sizes, {{"round", absl::StrCat(round.value)}});
  for (const LayoutEntry& entry : layout->entries()) {
    const std::span<const std::byte> bytes =
        values.bytes.subspan(entry.offset * width, entry.size * width);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  file.close();
  if (!file.good()) return absl::UnavailableError(absl::StrCat("cannot write ", part));
  std::error_code error;
  std::filesystem::rename(part, path, error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

}  // namespace macaw::server
