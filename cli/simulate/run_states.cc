#include "cli/simulate/run_states.h"

#include <signal.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cli/config/client_state.h"
#include "cli/config/reader.h"
#include "cli/config/resolve.h"
#include "cli/simulate/figures.h"
#include "cli/simulate/owners.h"
#include "core/files.h"
#include "core/status.h"
#include "server/journal/recovery.h"
#include "state/open.h"
#include "state/redis_url.h"

namespace macaw::cli {
namespace {

namespace fs = std::filesystem;

std::string NoteOf(const std::string& run) { return run + "/state/dropped"; }

// The folder of the states, if they are in a folder of this host.
std::optional<std::string> FolderOf(const Config& config, const std::string& run) {
  if (config.node.state.store == "disk") return StoreOptionsOf(config, run).path;
  if (config.node.state.store == "redis" && config.node.state.url == "spawn") return run + "/state";
  return std::nullopt;
}

// The folders in which the run's owners keep their clients' states, beside FolderOf.
std::vector<std::string> OwnersFoldersOf(const Config& config, const std::string& run) {
  std::vector<std::string> folders;
  for (uint32_t owner = 0; owner < config.node.workers.owners; ++owner) {
    std::string kept = OwnerFolder(run, owner) + "/state";
    if (FileExists(kept)) folders.push_back(std::move(kept));
  }
  return folders;
}

// The disk space of the files of a folder, without holes.
absl::StatusOr<uint64_t> BytesTaken(const std::string& folder) {
  constexpr uint64_t kBlock = 512;  // unit of st_blocks on every file system
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    struct stat info {};
    if (::lstat(entry->path().c_str(), &info) == 0 && S_ISREG(info.st_mode))
      bytes += static_cast<uint64_t>(info.st_blocks) * kBlock;
  }
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot list ", folder));
  return bytes;
}

absl::Status OpenStoreOf(const Config& config, const std::string& run, RunStates& states) {
  state::StateSchema schema;
  for (const algorithms::NamedLayout& item : states.items) schema.push_back(item.layout);
  state::StoreOptions options = StoreOptionsOf(config, run);
  options.cache_bytes = 0;  // no cache: everything is read once
  if (options.ends_with_process()) {
    return absl::FailedPreconditionError(
        absl::StrCat(run, ": its states were kept in memory and ended with the run"));
  }
  if (options.store != "disk") {
    ::signal(SIGPIPE, SIG_IGN);
    if (options.url == "spawn") {
      MACAW_ASSIGN_OR_RETURN(states.redis, PrivateRedis::Start(run));
      options.url = states.redis->url();
    }
    MACAW_ASSIGN_OR_RETURN(states.store,
                           state::OpenStore(options, std::move(schema), states.newest().run_id));
    return absl::OkStatus();
  }
  if (!FileExists(options.path + "/store"))
    return MissingFile(options.path + "/store",
                       absl::StrCat(options.path, " holds no client states"));
  MACAW_ASSIGN_OR_RETURN(
      std::unique_ptr<state::DiskStateStore> disk,
      state::DiskStateStore::Open(options.path, std::move(schema), states.newest().run_id));
  states.disk = disk.get();
  states.store = std::move(disk);
  return absl::OkStatus();
}

// Deletes only the versions of this run: other runs may use the same Redis.
absl::Status DeleteAll(const std::string& run) {
  MACAW_ASSIGN_OR_RETURN(const RunStates states, OpenRunStates(run, Use::kHeld));
  std::vector<Attempt> versions;
  MACAW_RETURN_IF_ERROR(
      states.store->ForEach([&](const Attempt& version) { versions.push_back(version); }));
  MACAW_RETURN_IF_ERROR(states.store->Delete(versions));
  return states.store->Flush();
}

// The store's own files: state.path may hold something else.
absl::Status RemoveFiles(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name == "store" || name == "appendonlydir" || entry.path().extension() == ".states")
      files.push_back(entry.path());
  }
  for (const fs::path& file : files) {
    if (!error) fs::remove_all(file, error);
  }
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot remove the states in ", folder));
}

}  // namespace

absl::StatusOr<RunStates> OpenRunStates(const std::string& run, Use use) {
  const std::string file = run + "/config.toml";
  if (!FileExists(file)) return MissingFile(file, absl::StrCat(run, " holds no run"));
  MACAW_RETURN_IF_ERROR(CheckStatesKept(run));
  MACAW_ASSIGN_OR_RETURN(const Document document, OpenDocument(file));
  MACAW_ASSIGN_OR_RETURN(const sdk::Catalogue catalogue, LoadCatalogue(document, {}));
  MACAW_ASSIGN_OR_RETURN(const Config config, ReadConfig(document, {}, catalogue, Idle::kLeaveOut));
  MACAW_ASSIGN_OR_RETURN(const models::ModelSpec spec, SpecOf(config));
  RunStates states;
  const bool starts_redis = config.node.state.store == "redis" && config.node.state.url == "spawn";
  if (use == Use::kChange || (use == Use::kRead && starts_redis)) {
    MACAW_ASSIGN_OR_RETURN(states.held, OpenRunFolder(run));
  }
  MACAW_ASSIGN_OR_RETURN(states.items, StateItemsOf(config, spec, catalogue.algorithms()));
  if (states.items.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(run, ": the clients of ", config.run.algorithm.name, " keep no state"));
  }
  if (config.node.workers.owners > 0 && config.node.state.store == "disk" &&
      config.node.state.path.empty()) {
    return absl::UnimplementedError(absl::StrCat(
        run, ": its ", config.node.workers.owners, " owners keep their clients' states (", run,
        "/owners); this command reads what is kept in one place"));
  }
  MACAW_ASSIGN_OR_RETURN(states.checkpoints, server::ReadKeptVersions(run));
  if (states.checkpoints.empty()) {
    return absl::NotFoundError(
        absl::StrCat(run, " has no checkpoint yet, which says whose states are current"));
  }
  MACAW_RETURN_IF_ERROR(OpenStoreOf(config, run, states));
  return states;
}

absl::StatusOr<std::set<Attempt>> VersionsSinceCheckpoint(const std::string& run,
                                                          const RunStates& states) {
  MACAW_ASSIGN_OR_RETURN(const std::vector<Attempt> attempts,
                         server::AttemptsSince(run, states.newest().round));
  return std::set<Attempt>(attempts.begin(), attempts.end());
}

absl::StatusOr<std::string> RoomOfStates(const Config& config, const std::string& run) {
  if (config.node.state.store == "memory") return std::string();
  const std::optional<std::string> folder = FolderOf(config, run);
  if (!folder.has_value())
    return absl::StrCat("in ", state::WithoutPassword(config.node.state.url), "; macaw state ls ",
                        run);
  const std::vector<std::string> owners = OwnersFoldersOf(config, run);
  uint64_t bytes = 0;
  for (const std::string& kept : owners) {
    MACAW_ASSIGN_OR_RETURN(const uint64_t own, BytesTaken(kept));
    bytes += own;
  }
  const std::string of_owners = owners.empty() ? "" : absl::StrCat(run, "/owners/");
  // Where owners have all clients nobody else keeps a state.
  if (!owners.empty() && !FileExists(*folder))
    return absl::StrCat(SizeText(static_cast<double>(bytes)), " in ", of_owners);
  MACAW_ASSIGN_OR_RETURN(const uint64_t others, BytesTaken(*folder));
  return absl::StrCat(SizeText(static_cast<double>(bytes + others)), " in ", *folder, "/",
                      owners.empty() ? "" : " and ", of_owners);
}

absl::Status DropStates(const Config& config, const std::string& run) {
  if (config.node.state.store == "memory") return absl::OkStatus();
  const std::optional<std::string> folder = FolderOf(config, run);
  MACAW_RETURN_IF_ERROR(folder.has_value() ? RemoveFiles(*folder) : DeleteAll(run));
  if (folder.has_value()) {
    for (const std::string& kept : OwnersFoldersOf(config, run))
      MACAW_RETURN_IF_ERROR(RemoveFiles(kept));
  }
  MACAW_RETURN_IF_ERROR(MakeDirectories(run + "/state"));
  return AtomicWriteFile(NoteOf(run), "The run was over: state.keep = false.\n");
}

absl::Status CheckStatesKept(const std::string& run) {
  if (!FileExists(NoteOf(run))) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the clients' states of ", run,
                   " were dropped when it was over (state.keep = false), so it cannot go on"));
}

}  // namespace macaw::cli
