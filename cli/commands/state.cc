#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/commands/commands.h"
#include "cli/process/exit.h"
#include "cli/simulate/run_folder.h"
#include "cli/simulate/run_states.h"
#include "core/named_file.h"
#include "core/safetensors.h"
#include "core/status.h"
#include "proto/fleet/state_digest.h"
#include "state/blob.h"
#include "state/range_digest.h"

namespace macaw::cli {
namespace {

constexpr size_t kShown = 10;  // clients named in an error message

template <typename F>
void ForEachVersion(const server::VersionIndex& index, const F& f) {
  for (uint64_t page = 0; page < index.pages(); ++page) {
    for (const Attempt& version : index.Page(page)) f(version);
  }
}

// The versions in a store.
struct Stored {
  uint64_t all = 0;
  uint64_t since = 0;            // that no checkpoint names, but log or journal
  std::vector<Attempt> orphans;  // that nothing names
};

absl::StatusOr<Stored> SortStored(const std::string& run, const RunStates& states) {
  MACAW_ASSIGN_OR_RETURN(const std::set<Attempt> since, VersionsSinceCheckpoint(run, states));
  Stored stored;
  MACAW_RETURN_IF_ERROR(states.store->ForEach([&](const Attempt& version) {
    ++stored.all;
    const bool named = std::ranges::any_of(states.checkpoints, [&](const auto& checkpoint) {
      return checkpoint.versions.Get(version.client) == version.fence;
    });
    if (named) return;
    if (since.contains(version)) {
      ++stored.since;
    } else {
      stored.orphans.push_back(version);
    }
  }));
  return stored;
}

// ", N bytes in M files" for a store on disk.
absl::StatusOr<std::string> RoomTaken(const RunStates& states) {
  if (states.disk == nullptr) return std::string();
  MACAW_ASSIGN_OR_RETURN(const auto usage, states.disk->UsageOnDisk());
  return absl::StrCat(", ", usage.bytes, " bytes in ", usage.files,
                      usage.files == 1 ? " file" : " files");
}

void PrintRow(absl::string_view what, absl::string_view text) {
  std::cout << absl::StrFormat("%-14s %s\n", what, text);
}

absl::Status List(const std::string& run) {
  MACAW_ASSIGN_OR_RETURN(const RunStates states, OpenRunStates(run));
  MACAW_ASSIGN_OR_RETURN(const Stored stored, SortStored(run, states));
  for (const algorithms::NamedLayout& item : states.items) {
    PrintRow("item",
             absl::StrCat(item.name, ", ", item.layout->count(), " ", Name(item.layout->dtype())));
  }
  PrintRow("a state", absl::StrCat(state::BlobBytes(states.store->schema()), " bytes"));
  MACAW_ASSIGN_OR_RETURN(const std::string room, RoomTaken(states));
  PrintRow("stored", absl::StrCat(stored.all, " versions", room));
  for (const server::KeptVersions& checkpoint : states.checkpoints) {
    PrintRow("checkpoint", absl::StrCat("after round ", checkpoint.round.value, ": ",
                                        checkpoint.versions.size(), " clients with a state"));
  }
  if (stored.since > 0) {
    PrintRow("since", absl::StrCat(stored.since,
                                   " versions of later rounds, which the next server takes from "
                                   "log and journal"));
  }
  PrintRow("orphans", absl::StrCat(stored.orphans.size(), " versions that nothing names",
                                   stored.orphans.empty() ? "" : " (macaw state gc)"));
  return absl::OkStatus();
}

absl::Status Verify(const std::string& run) {
  MACAW_ASSIGN_OR_RETURN(const RunStates states, OpenRunStates(run));
  std::vector<std::string> bad;
  uint64_t failures = 0;
  for (const server::KeptVersions& checkpoint : states.checkpoints) {
    uint64_t bytes = 0;
    ForEachVersion(checkpoint.versions, [&](const Attempt& version) {
      const absl::StatusOr<state::ClientState> state = states.store->Get(version);
      if (state.ok()) {
        for (const ConstVectorView& item : state->items) bytes += item.bytes.size();
      } else if (++failures <= kShown) {
        bad.push_back(std::string(state.status().message()));
      }
    });
    PrintRow("checkpoint",
             absl::StrCat("after round ", checkpoint.round.value, ": ", checkpoint.versions.size(),
                          " versions, ", bytes, " bytes of state"));
  }
  for (const std::string& why : bad) std::cout << "  " << why << "\n";
  if (failures > 0) {
    return absl::DataLossError(absl::StrCat(
        failures, " states are missing or damaged", failures > kShown ? ", of which " : "",
        failures > kShown ? absl::StrCat(kShown, " are named above") : ""));
  }
  std::vector<Digest> ranges;
  const server::VersionIndex& index = states.newest().versions;
  for (uint64_t page = 0; page < index.pages(); ++page) {
    const std::vector<Attempt> versions = index.Page(page);
    if (versions.empty()) continue;
    MACAW_ASSIGN_OR_RETURN(const Digest digest, state::DigestOfRange(*states.store, versions));
    ranges.push_back(digest);
  }
  PrintRow("state_digest", fleet::CombineStateDigests(index.size(), ranges).Hex());
  return absl::OkStatus();
}

absl::Status Sweep(const std::string& run) {
  MACAW_ASSIGN_OR_RETURN(const RunStates states, OpenRunStates(run, Use::kChange));
  MACAW_ASSIGN_OR_RETURN(const Stored stored, SortStored(run, states));
  MACAW_RETURN_IF_ERROR(states.store->Delete(stored.orphans));
  MACAW_RETURN_IF_ERROR(states.store->Flush());
  MACAW_ASSIGN_OR_RETURN(const std::string room, RoomTaken(states));
  PrintRow("deleted", absl::StrCat(stored.orphans.size(), " of ", stored.all, " versions"));
  PrintRow("left", absl::StrCat(stored.all - stored.orphans.size(), " versions", room));
  return absl::OkStatus();
}

// A client's version in the newest checkpoint.
absl::StatusOr<Fence> CurrentVersion(const RunStates& states, ClientId client) {
  const Fence version = states.newest().versions.Get(client);
  if (version.counter > 0) return version;
  return absl::NotFoundError(absl::StrCat("client ", client.value, " has no state after round ",
                                          states.newest().round.value));
}

// Says that the client has a newer version than the newest checkpoint's, if so.
absl::Status PrintNewer(const std::string& run, const RunStates& states, ClientId client) {
  MACAW_ASSIGN_OR_RETURN(const std::set<Attempt> since, VersionsSinceCheckpoint(run, states));
  for (const Attempt& version : since) {
    if (version.client != client || !states.store->GetBlob(version).ok()) continue;
    PrintRow("newer", absl::StrCat("version ", version.fence.epoch, ".", version.fence.counter,
                                   ", of a later round, which the next server takes from log and "
                                   "journal"));
  }
  return absl::OkStatus();
}

// Norms of a vector of either type, in double.
struct Norms {
  double two = 0, largest = 0;
  uint64_t not_finite = 0;
};
Norms NormsOf(const ConstVectorView& item) {
  Norms norms;
  double squares = 0;
  DispatchDType(item.layout->dtype(), [&]<typename T>(T) {
    for (const T value : item.As<T>()) {
      const auto x = static_cast<double>(value);
      if (!std::isfinite(x)) {
        ++norms.not_finite;
        continue;
      }
      squares += x * x;
      norms.largest = std::max(norms.largest, std::abs(x));
    }
  });
  norms.two = std::sqrt(squares);
  return norms;
}

absl::Status Show(const std::string& run, ClientId client) {
  MACAW_ASSIGN_OR_RETURN(const RunStates states, OpenRunStates(run));
  MACAW_ASSIGN_OR_RETURN(const Fence fence, CurrentVersion(states, client));
  const Attempt version{client, fence};
  MACAW_ASSIGN_OR_RETURN(state::BlobPtr blob, states.store->GetBlob(version));
  MACAW_ASSIGN_OR_RETURN(const state::BlobHeader header, state::ReadHeader(blob->bytes()));
  PrintRow("client", absl::StrCat(client.value, ", after round ", states.newest().round.value));
  PrintRow("version", absl::StrCat(header.version.fence.epoch, ".", header.version.fence.counter,
                                   " (start of the server, attempt)"));
  PrintRow("format", absl::StrCat(header.format));
  PrintRow("schema", header.schema.Hex());
  PrintRow("checksum", absl::StrFormat("%016x (XXH3-64)", header.checksum));
  PrintRow("bytes", absl::StrCat(blob->size(), ", of which ", header.payload, " of state"));
  MACAW_ASSIGN_OR_RETURN(const state::ClientState state,
                         state::OpenBlob(std::move(blob), version, states.store->schema()));
  for (size_t i = 0; i < states.items.size(); ++i) {
    const Norms norms = NormsOf(state.items[i]);
    PrintRow("item", absl::StrFormat(
                         "%s, %d %s: norm %.9g, largest %.9g%s", states.items[i].name,
                         states.items[i].layout->count(), Name(states.items[i].layout->dtype()),
                         norms.two, norms.largest,
                         norms.not_finite == 0
                             ? ""
                             : absl::StrCat(", and ", norms.not_finite, " that are not finite")));
  }
  return PrintNewer(run, states, client);
}

absl::Status Export(const std::string& run, ClientId client, const std::string& out) {
  MACAW_ASSIGN_OR_RETURN(const RunStates states, OpenRunStates(run));
  MACAW_ASSIGN_OR_RETURN(const Fence version, CurrentVersion(states, client));
  MACAW_ASSIGN_OR_RETURN(const state::ClientState state, states.store->Get({client, version}));
  std::vector<TensorToWrite> tensors;
  for (size_t i = 0; i < states.items.size(); ++i) {
    const ParameterLayout& layout = *states.items[i].layout;
    const size_t each = SizeOf(layout.dtype());
    for (const LayoutEntry& entry : layout.entries()) {
      tensors.push_back(
          {.name = absl::StrCat(states.items[i].name, "/", entry.name),
           .dtype = layout.dtype() == DType::kF32 ? "F32" : "F64",
           .shape = {entry.shape.begin(), entry.shape.end()},
           .bytes = state.items[i].bytes.subspan(entry.offset * each, entry.size * each)});
    }
  }
  MACAW_RETURN_IF_ERROR(WriteNamedFile(out, [&](const std::string& path) {
    return WriteSafetensors(path, tensors,
                            {{"client", absl::StrCat(client.value)},
                             {"round", absl::StrCat(states.newest().round.value)},
                             {"version", absl::StrCat(version.epoch, ".", version.counter)}});
  }));
  PrintRow("written", absl::StrCat(out, ": ", tensors.size(), " tensors of client ", client.value,
                                   " after round ", states.newest().round.value));
  return PrintNewer(run, states, client);
}

// Counts, bytes, versions by checkpoint, those of later rounds, orphans.
int StateList(const std::string& run) { return Report(List(run)); }
// Reads every version that a checkpoint names. If some are missing or damaged, fails and names
// their clients.
int StateVerify(const std::string& run) { return Report(Verify(run)); }
// Deletes versions that neither a checkpoint nor log and journal name. Refused while the run is
// going on.
int StateSweep(const std::string& run) { return Report(Sweep(run)); }
// Shows a client's version in the newest checkpoint: its header, and size and norms of each item.
int StateShow(const std::string& run, uint64_t client) {
  return Report(Show(run, ClientId(client)));
}
// Writes the state of that version as safetensors: one tensor ITEM/ENTRY for each entry of each
// item.
int StateExport(const std::string& run, uint64_t client, const std::string& out) {
  return Report(Export(run, ClientId(client), out));
}

}  // namespace

void AddState(CLI::App& app, std::function<int()>& run) {
  CLI::App* state = app.add_subcommand("state", "What a run's clients keep between rounds");
  state->require_subcommand(1);
  auto folder = std::make_shared<std::string>(), out = std::make_shared<std::string>();
  auto client = std::make_shared<uint64_t>(0);
  const auto add = [&](const std::string& name, const std::string& help) {
    CLI::App* command = state->add_subcommand(name, help);
    command->add_option("RUN", *folder, "The run's folder")->required();
    return command;
  };
  add("ls", "Counts, bytes, versions, orphans")->final_callback([=, &run] {
    run = [folder] { return StateList(*folder); };
  });
  add("verify", "Read every version that a checkpoint names")->final_callback([=, &run] {
    run = [folder] { return StateVerify(*folder); };
  });
  add("gc", "Delete what neither a checkpoint nor the journal names")->final_callback([=, &run] {
    run = [folder] { return StateSweep(*folder); };
  });
  CLI::App* show = add("show", "One client's state: its header, and norms of its items");
  show->add_option("CLIENT", *client, "The client's number")->required();
  show->final_callback([=, &run] { run = [=] { return StateShow(*folder, *client); }; });
  CLI::App* write = add("export", "Write one client's state (safetensors)");
  write->add_option("CLIENT", *client, "The client's number")->required();
  write->add_option("--out,-o", *out, "The file to write")->required();
  write->final_callback([=, &run] { run = [=] { return StateExport(*folder, *client, *out); }; });
}

}  // namespace macaw::cli
