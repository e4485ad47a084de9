#include "server/checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "core/files.h"
#include "core/logging.h"
#include "core/safetensors.h"
#include "core/status.h"
#include "plan/run_plan.h"

namespace macaw::server {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kFormat = 1;
constexpr size_t kKept = 2;
constexpr char kModel[] = "model";                     // what rules call the common model
constexpr char kFeedback[] = "known_clients";          // nor of this
constexpr char kVersions[] = "client_state_versions";  // no algorithm has a vector of this name

std::string FileName(Round round) {
  char name[40];
  std::snprintf(name, sizeof(name), "round-%08u.safetensors", round.value);
  return name;
}

// The checkpoints in the folder, the oldest first.
std::vector<std::string> CheckpointFiles(const std::string& run_dir) {
  std::vector<std::string> files;
  std::error_code ignored;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(run_dir + "/checkpoints", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("round-") && name.ends_with(".safetensors"))
      files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Digest of the text and of every tensor's name and bytes, so that any flipped bit is detected.
Digest DigestOfAll(const std::string& about,
                   const std::map<std::string, std::span<const std::byte>>& tensors) {
  Digester digester;
  digester.Add(about);
  for (const auto& [name, bytes] : tensors) digester.Add(name).Add(bytes.size()).Add(bytes);
  return digester.Finish();
}

// A fingerprint leaves out keys without an effect, and those of earlier releases have some of them,
// with their defaults. They lack keys that came later, whose defaults change nothing.
bool IsDefault(const std::string& key, const std::string& value) {
  const auto& fields = PlanSection().fields();
  const auto field = std::ranges::find(fields, key, &settings::Field<RunPlan>::key);
  if (field == fields.end()) return false;
  const std::optional<settings::Value> standard = field->get(RunPlan());
  return standard.has_value() && ToToml(*standard) == value;
}

// What a user sets, of a key that a plan derives from it.
std::string KeyOfUsers(const std::string& key) {
  static const auto* const derived = new std::map<std::string, std::string>{
      {"devices.deadline", "round.deadline"},
      {"devices.quorum", "round.quorum"},
      {"devices.enough", "round.enough"},
      {"devices.drops_below", "round.below_quorum"},
      {"devices.table", "the rows of devices.file"},
      {"devices.presence_table", "the rows of devices.presence"}};
  const auto found = derived->find(key);
  return found == derived->end() ? key : found->second;
}

// The value of that key, as the user writes it.
std::string ValueOfUsers(const std::string& key, const std::string& value) {
  if (key != "devices.drops_below") return value;
  return value == "true" ? "\"drop\"" : "\"extend\"";
}

absl::Status CompareFingerprints(const std::map<std::string, std::string>& here,
                                 const std::map<std::string, std::string>& there,
                                 const std::string& path) {
  for (const auto& [key, value] : there) {
    const auto it = here.find(key);
    if (it == here.end() ? !IsDefault(key, value) : it->second != value) {
      const std::string now = it == here.end() ? "(not set)" : ValueOfUsers(key, it->second);
      return absl::FailedPreconditionError(
          absl::StrCat("cannot resume from ", path, ": it was written with ", KeyOfUsers(key),
                       " = ", ValueOfUsers(key, value), ", the configuration now says ", now));
    }
  }
  for (const auto& [key, value] : here) {
    if (!there.contains(key) && !IsDefault(key, value)) {
      return absl::FailedPreconditionError(
          absl::StrCat("cannot resume from ", path, ": it was written without ", KeyOfUsers(key),
                       ", which is now ", ValueOfUsers(key, value)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<FlatVector> ReadVector(const TensorRef& tensor, const Digest& layout_digest,
                                      const std::vector<LayoutPtr>& layouts) {
  for (const LayoutPtr& layout : layouts) {
    if (layout->digest() != layout_digest || layout->bytes() != tensor.bytes.size()) continue;
    FlatVector vector(layout);
    std::memcpy(vector.view().bytes.data(), tensor.bytes.data(), tensor.bytes.size());
    return vector;
  }
  return absl::FailedPreconditionError(
      "it belongs to another model or algorithm: no vector of this run has its tensors (names, "
      "shapes and dtype)");
}

Round RoundOf(const std::string& path) {
  unsigned round = 0;
  std::sscanf(fs::path(path).filename().c_str(), "round-%u", &round);
  return Round(round);
}

// Whether the file's digest matches its content.
bool DigestMatches(const SafetensorsFile& file) {
  std::map<std::string, std::span<const std::byte>> named;
  for (const auto& [name, tensor] : file.tensors()) named[name] = tensor.bytes;
  return DigestOfAll(file.metadata().at("macaw"), named).Hex() == file.metadata().at("digest");
}

bool IsCheckpoint(const SafetensorsFile& file) {
  return file.metadata().contains("macaw") && file.metadata().contains("digest");
}

absl::StatusOr<VersionIndex> VersionsIn(const SafetensorsFile& file, uint64_t clients) {
  const auto found = file.tensors().find(kVersions);
  if (found == file.tensors().end()) return VersionIndex();
  if (found->second.dtype != "I64") return absl::DataLossError("its versions are no numbers");
  std::vector<uint64_t> numbers(found->second.bytes.size() / sizeof(uint64_t));
  std::memcpy(numbers.data(), found->second.bytes.data(), numbers.size() * sizeof(uint64_t));
  return VersionIndex::Decode(numbers, clients);
}

std::string FeedbackIn(const SafetensorsFile& file) {
  const auto found = file.tensors().find(kFeedback);
  if (found == file.tensors().end()) return "";
  const std::span<const std::byte> bytes = found->second.bytes;
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

absl::StatusOr<Digest> RunIdIn(const Json& about) {
  if (!about.contains("run_id")) return Digest{};  // written by a version without run_id
  return Digest::FromHex(about.at("run_id").get<std::string>());
}

// The number of clients of the run, from its fingerprint.
uint64_t ClientsIn(const Json& about) {
  const auto found = about.at("fingerprint").find("run.clients");
  uint64_t clients = 0;
  const bool named = found != about.at("fingerprint").end() &&
                     absl::SimpleAtoi(found->get<std::string>(), &clients) && clients > 0;
  return named ? clients : uint64_t{1} << 40;
}

Json ToJson(const NumericProfile& profile) {
  return {profile.trainer, profile.instruction_set, profile.libraries};
}

Json ToJson(const virtual_time::ClockState& clock) {
  Json training = Json::array();
  for (const virtual_time::ClockState::Training& one : clock.training)
    training.push_back({one.arrives, one.client.value, one.rows, one.base.value, one.number});
  return {{"now", clock.now},       {"down", clock.traffic.down}, {"up", clock.traffic.up},
          {"training", training},   {"groups", clock.groups},     {"begun", clock.begun},
          {"before", clock.before}, {"worked", clock.worked}};
}

// Throws if something is missing.
virtual_time::ClockState ClockIn(const Json& about) {
  virtual_time::ClockState clock{
      .now = about.at("now").get<double>(),
      .traffic = {.down = about.at("down").get<double>(), .up = about.at("up").get<double>()},
      .groups = about.at("groups").get<uint64_t>(),
      .begun = about.at("begun").get<uint64_t>(),
      .before = about.value("before", 0.0),  // older checkpoints have no rounds that overlap
      .worked = about.value("worked", 0.0)};
  for (const Json& one : about.at("training")) {
    clock.training.push_back({.arrives = one.at(0).get<double>(),
                              .client = ClientId(one.at(1).get<uint64_t>()),
                              .rows = one.at(2).get<uint64_t>(),
                              .base = Round(one.at(3).get<uint32_t>()),
                              .number = one.at(4).get<uint64_t>()});
  }
  return clock;
}

// Everything except the vectors and the versions. Throws if a key is missing.
absl::StatusOr<Checkpoint> FactsIn(const Json& about) {
  Checkpoint checkpoint{
      .round = Round(about.at("round").get<uint32_t>()),
      .fingerprint = about.at("fingerprint").get<std::map<std::string, std::string>>(),
      .owed_row = about.at("owed_row").get<std::string>(),
      .metrics_bytes = about.at("metrics_bytes").get<uint64_t>(),
      .clients_bytes = about.at("clients_bytes").get<uint64_t>(),
      .owed_contributions = about.value("owed_contributions", std::string()),
      .contributions_bytes = about.value("contributions_bytes", uint64_t{0}),
      .log_bytes = about.value("log_bytes", uint64_t{0}),
      .seconds = about.at("seconds").get<double>(),
      .begins_anew = about.value("begins_anew", false)};
  if (const auto clock = about.find("virtual_time"); clock != about.end())
    checkpoint.clock = ClockIn(*clock);
  checkpoint.state.numbers = about.at("numbers").get<std::map<std::string, double>>();
  auto profiles = about.value("more_profiles", std::vector<std::vector<std::string>>());
  profiles.insert(profiles.begin(), about.at("profile").get<std::vector<std::string>>());
  for (const std::vector<std::string>& profile : profiles)
    checkpoint.profiles.push_back({profile.at(0), profile.at(1), profile.at(2)});
  MACAW_ASSIGN_OR_RETURN(checkpoint.data_digest,
                         Digest::FromHex(about.at("data").get<std::string>()));
  MACAW_ASSIGN_OR_RETURN(checkpoint.run_id, RunIdIn(about));
  if (const auto base = about.find("base"); base != about.end()) {
    MACAW_ASSIGN_OR_RETURN(checkpoint.base, Digest::FromHex(base->get<std::string>()));
  }
  return checkpoint;
}

// The server's vectors. Throws if a layout is missing.
using VectorsByName = decltype(algorithms::ServerState::vectors);
absl::StatusOr<VectorsByName> VectorsIn(const SafetensorsFile& file, const Json& about,
                                        const std::vector<LayoutPtr>& layouts) {
  VectorsByName vectors;
  for (const auto& [name, tensor] : file.tensors()) {
    if (name == kVersions || name == kFeedback) continue;
    MACAW_ASSIGN_OR_RETURN(const Digest digest,
                           Digest::FromHex(about.at("layouts").at(name).get<std::string>()));
    absl::StatusOr<FlatVector> vector = ReadVector(tensor, digest, layouts);
    if (!vector.ok()) return Annotate(vector.status(), name);
    vectors[name] = *std::move(vector);
  }
  return vectors;
}

// Name, first element and shape of each tensor, for readers that have no plan.
Json PlacesOf(const ParameterLayout& layout) {
  Json tensors = Json::array();
  for (const LayoutEntry& entry : layout.entries())
    tensors.push_back({entry.name, entry.offset, entry.shape});
  return tensors;
}

}  // namespace

absl::StatusOr<Round> WriteCheckpoint(const std::string& run_dir, const Checkpoint& checkpoint) {
  MACAW_RETURN_IF_ERROR(MakeDirectories(run_dir + "/checkpoints"));
  std::vector<NumericProfile> profiles = checkpoint.profiles;
  if (profiles.empty()) profiles.emplace_back();  // nobody has registered
  Json about = {{"format", kFormat},
                {"round", checkpoint.round.value},
                {"numbers", checkpoint.state.numbers},
                {"fingerprint", checkpoint.fingerprint},
                {"data", checkpoint.data_digest.Hex()},
                {"profile", ToJson(profiles.front())},
                {"owed_row", checkpoint.owed_row},
                {"metrics_bytes", checkpoint.metrics_bytes},
                {"clients_bytes", checkpoint.clients_bytes},
                {"log_bytes", checkpoint.log_bytes},
                {"seconds", checkpoint.seconds},
                {"run_id", checkpoint.run_id.Hex()},
                {"clients_with_state", checkpoint.versions.size()}};
  if (checkpoint.contributions_bytes > 0 || !checkpoint.owed_contributions.empty()) {
    about["owed_contributions"] = checkpoint.owed_contributions;
    about["contributions_bytes"] = checkpoint.contributions_bytes;
  }
  if (checkpoint.begins_anew) about["begins_anew"] = true;
  if (checkpoint.clock != virtual_time::ClockState())
    about["virtual_time"] = ToJson(checkpoint.clock);
  for (size_t i = 1; i < profiles.size(); ++i)
    about["more_profiles"].push_back(ToJson(profiles[i]));
  // Of a run with frozen tensors the model lacks these. Release 0.1.0 wrote a whole one beside it,
  // and named that here.
  about["model"] = kModel;
  if (!checkpoint.base.IsZero()) about["base"] = checkpoint.base.Hex();
  std::vector<TensorToWrite> tensors;
  std::map<std::string, std::span<const std::byte>> named;
  for (const auto& [name, vector] : checkpoint.state.vectors) {
    const ConstVectorView view = vector.view();
    about["layouts"][name] = view.layout->digest().Hex();
    if (name == kModel) about["tensors"] = PlacesOf(*view.layout);
    tensors.push_back({.name = name,
                       .dtype = view.dtype() == DType::kF32 ? "F32" : "F64",
                       .shape = {view.size()},
                       .bytes = view.bytes});
    named[name] = view.bytes;
  }
  const std::vector<uint64_t> versions = checkpoint.versions.Encode();
  if (!versions.empty()) {
    tensors.push_back({.name = kVersions,
                       .dtype = "I64",
                       .shape = {versions.size() / 2, 2},
                       .bytes = std::as_bytes(std::span(versions))});
    named[kVersions] = tensors.back().bytes;
  }
  if (!checkpoint.feedback.empty()) {
    tensors.push_back({.name = kFeedback,
                       .dtype = "U8",
                       .shape = {checkpoint.feedback.size()},
                       .bytes = std::as_bytes(std::span(checkpoint.feedback))});
    named[kFeedback] = tensors.back().bytes;
  }
  const std::string text = about.dump();
  const std::string path = absl::StrCat(run_dir, "/checkpoints/", FileName(checkpoint.round));
  MACAW_RETURN_IF_ERROR(WriteSafetensors(
      path, tensors, {{"macaw", text}, {"digest", DigestOfAll(text, named).Hex()}}));
  std::vector<std::string> files = CheckpointFiles(run_dir);
  for (size_t i = 0; i + kKept < files.size(); ++i) {
    std::error_code error;
    if (!fs::remove(files[i], error))
      Logger("server").Warning(absl::StrCat("cannot remove ", files[i]));
  }
  return RoundOf(CheckpointFiles(run_dir).front());
}

absl::StatusOr<std::vector<KeptVersions>> ReadKeptVersions(const std::string& run_dir) {
  std::vector<KeptVersions> kept;
  for (const std::string& path : CheckpointFiles(run_dir)) {
    MACAW_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
    if (!IsCheckpoint(file) || !DigestMatches(file)) {
      return absl::DataLossError(absl::StrCat(path, " is damaged: remove it to do without"));
    }
    const Json about = Json::parse(file.metadata().at("macaw"), nullptr, false);
    if (!about.is_object() || !about.contains("fingerprint"))
      return absl::DataLossError(absl::StrCat(path, " was written by another version"));
    absl::StatusOr<VersionIndex> versions = VersionsIn(file, ClientsIn(about));
    if (!versions.ok()) return Annotate(versions.status(), path);
    MACAW_ASSIGN_OR_RETURN(const Digest run_id, RunIdIn(about));
    kept.push_back({path, RoundOf(path), run_id, *std::move(versions)});
  }
  return kept;
}

bool HasCheckpoint(const std::string& run_dir) { return !CheckpointFiles(run_dir).empty(); }

std::optional<Round> NewestCheckpoint(const std::string& run_dir) {
  const std::vector<std::string> files = CheckpointFiles(run_dir);
  return files.empty() ? std::nullopt : std::optional(RoundOf(files.back()));
}

bool HasBegun(const std::string& run_dir) {
  return FileExists(run_dir + "/epoch") || FileExists(run_dir + "/config.toml");
}

absl::StatusOr<Checkpoint> ReadNewestCheckpoint(
    const std::string& run_dir, const std::map<std::string, std::string>& fingerprint,
    const std::vector<LayoutPtr>& layouts) {
  const std::vector<std::string> files = CheckpointFiles(run_dir);
  if (files.empty()) {
    return absl::NotFoundError(
        absl::StrCat("there is no checkpoint in ", run_dir, "/checkpoints to resume from"));
  }
  const std::string& path = files.back();
  const auto damaged = [&](absl::string_view why) {
    const std::string advice =
        files.size() > 1 ? absl::StrCat("remove it to resume from ", files[files.size() - 2])
                         : std::string("there is no older one; start the run again");
    return absl::DataLossError(
        absl::StrCat("checkpoint ", path, " is damaged (", why, "): ", advice));
  };
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  if (!file.ok()) return damaged(file.status().message());
  if (!IsCheckpoint(*file)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is not a checkpoint of this program"));
  }
  const std::string& text = file->metadata().at("macaw");
  if (!DigestMatches(*file)) return damaged("its digest does not match");

  // The digest matched, so the text is as it was written. A missing key means that another version
  // wrote it.
  try {
    const Json about = Json::parse(text);
    if (about.at("format") != kFormat) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, " has another checkpoint format than this program"));
    }
    MACAW_ASSIGN_OR_RETURN(Checkpoint checkpoint, FactsIn(about));
    MACAW_RETURN_IF_ERROR(CompareFingerprints(fingerprint, checkpoint.fingerprint, path));
    absl::StatusOr<VersionIndex> versions = VersionsIn(*file, ClientsIn(about));
    if (!versions.ok()) return damaged(versions.status().message());
    checkpoint.versions = *std::move(versions);
    checkpoint.feedback = FeedbackIn(*file);
    absl::StatusOr<VectorsByName> vectors = VectorsIn(*file, about, layouts);
    if (!vectors.ok()) return Annotate(vectors.status(), absl::StrCat("cannot resume from ", path));
    checkpoint.state.vectors = *std::move(vectors);
    return checkpoint;
  } catch (const std::exception& error) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " was written by another version: ", error.what()));
  }
}

}  // namespace macaw::server
