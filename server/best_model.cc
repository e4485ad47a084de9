#include "server/best_model.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/files.h"
#include "core/safetensors.h"
#include "core/status.h"

namespace macaw::server {
namespace {

namespace fs = std::filesystem;

constexpr char kBestFile[] = "/model.best.safetensors";

struct BestFile {
  Round round{};
  std::string path;
};

constexpr char kOnGrid[] = "best", kOffGrid[] = "end";  // how files' names begin

// The oldest first.
std::vector<BestFile> BestFilesIn(const std::string& run_dir, const std::string& kind) {
  std::vector<BestFile> files;
  std::error_code ignored;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(run_dir + "/checkpoints", ignored)) {
    unsigned round = 0;
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kind + "-") && name.ends_with(".safetensors") &&
        std::sscanf(name.c_str() + kind.size(), "-%u.safetensors", &round) == 1) {
      files.push_back({Round(round), entry.path().string()});
    }
  }
  std::ranges::sort(files, {}, &BestFile::round);
  return files;
}

}  // namespace

BestModels::BestModels(std::string run_dir, Round completed) : run_dir_(std::move(run_dir)) {
  std::error_code ignored;
  for (const char* kind : {kOnGrid, kOffGrid}) {
    for (const BestFile& file : BestFilesIn(run_dir_, kind)) {
      if (file.round > completed) fs::remove(file.path, ignored);
    }
  }
}

std::string BestModels::FileOf(Round round, bool off_grid) const {
  return absl::StrCat(run_dir_, absl::StrFormat("/checkpoints/%s-%08d.safetensors",
                                                off_grid ? kOffGrid : kOnGrid, round.value));
}

void BestModels::Hold(Round round, KeptModel model, bool off_grid) {
  (off_grid ? held_off_grid_ : held_) = {.round = round, .model = std::move(model)};
}

absl::Status BestModels::Write(const Held& held, bool off_grid) const {
  MACAW_ASSIGN_OR_RETURN(const ConstVectorView vector, held.model.Vector());
  MACAW_ASSIGN_OR_RETURN(const std::vector<TensorToWrite> tensors, held.model.Tensors());
  return WriteModel(FileOf(held.round, off_grid), vector,
                    WithAdapters({{"round", absl::StrCat(held.round.value)},
                                  {"model_digest", DigestOfTensors(tensors).Hex()}},
                                 held.model.adapters));
}

absl::Status BestModels::WriteHeld() {
  if (held_.has_value()) MACAW_RETURN_IF_ERROR(Write(*held_, /*off_grid=*/false));
  held_.reset();
  if (held_off_grid_.has_value()) MACAW_RETURN_IF_ERROR(Write(*held_off_grid_, /*off_grid=*/true));
  held_off_grid_.reset();
  return absl::OkStatus();
}

void BestModels::Prune(Round oldest) const {
  const std::vector<BestFile> files = BestFilesIn(run_dir_, kOnGrid);
  std::error_code ignored;
  // A checkpoint needs the newest model up to its round.
  for (size_t i = 0; i + 1 < files.size(); ++i) {
    if (files[i + 1].round <= oldest) fs::remove(files[i].path, ignored);
  }
  for (const BestFile& file : BestFilesIn(run_dir_, kOffGrid)) {
    if (file.round < oldest) fs::remove(file.path, ignored);  // of an earlier end
  }
}

absl::StatusOr<std::optional<Digest>> BestModels::Publish(Round round,
                                                          const SplitModel* split) const {
  const std::string to = run_dir_ + kBestFile;
  std::string from = FileOf(round, /*off_grid=*/true);
  if (!FileExists(from)) from = FileOf(round, /*off_grid=*/false);
  if (!FileExists(from)) {
    std::error_code ignored;  // one of another round would mislead
    fs::remove(to, ignored);
    return std::nullopt;
  }
  MACAW_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(from));
  MACAW_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Parse(BytesOf(bytes), from));
  const auto digest = file.metadata().find("model_digest");
  if (digest == file.metadata().end())
    return absl::DataLossError(absl::StrCat(from, " does not name its model_digest"));
  const bool whole =
      split == nullptr || file.tensors().size() == split->parts().whole->entries().size();
  if (whole) {
    MACAW_RETURN_IF_ERROR(AtomicWriteFile(to, bytes));
  } else {
    MACAW_ASSIGN_OR_RETURN(const FlatVector trained,
                           ReadModel(from, split->parts().trained.layout()));
    MACAW_RETURN_IF_ERROR(WriteSafetensors(to, split->Tensors(trained.view()), file.metadata()));
  }
  return Digest::FromHex(digest->second);
}

}  // namespace macaw::server
