#include "server/round_model.h"

#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/safetensors.h"
#include "core/status.h"

namespace macaw::server {

absl::Status WriteRoundModel(const std::string& run_dir, Round round, const KeptModel& model) {
  MACAW_ASSIGN_OR_RETURN(const std::vector<TensorToWrite> tensors, model.Tensors());
  std::vector<TensorSize> sizes;
  for (const TensorToWrite& tensor : tensors)
    sizes.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes.size()});
  const std::string path = run_dir + "/model.round.safetensors", part = path + ".part";
  std::ofstream file(part, std::ios::binary | std::ios::trunc);
  file << SafetensorsHeader(sizes,
                            WithAdapters({{"round", absl::StrCat(round.value)}}, model.adapters));
  for (const TensorToWrite& tensor : tensors) {
    file.write(reinterpret_cast<const char*>(tensor.bytes.data()),
               static_cast<std::streamsize>(tensor.bytes.size()));
  }
  file.close();
  if (!file.good()) return absl::UnavailableError(absl::StrCat("cannot write ", part));
  std::error_code error;
  std::filesystem::rename(part, path, error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

}  // namespace macaw::server
