#include "training/process/resident.h"

#include <chrono>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/logging.h"
#include "core/peer/program.h"
#include "core/status.h"

namespace macaw::training::process {

namespace {

constexpr Duration kFarewell = std::chrono::seconds(2);  // to end by itself

absl::StatusOr<std::unique_ptr<peer::Peer>> StartProgram(const TrainerSetup& setup, int memory,
                                                         int rows) {
  const ProgramOptions& options = setup.backend.program;
  ChildSpec spec{.name = options.command.front(),
                 .argv = options.command,
                 .folder = options.folder,
                 .environment = {{"MACAW_MEMORY", absl::StrCat(memory)},
                                 {"MACAW_SLOT", absl::StrCat(options.first_slot + setup.lane)},
                                 {"MACAW_SLOTS", absl::StrCat(options.slots)}},
                 .inherit = {memory}};
  if (rows >= 0) {
    spec.environment.emplace_back("MACAW_ROWS", absl::StrCat(rows));
    spec.inherit.push_back(rows);
  }
  absl::StatusOr<std::unique_ptr<peer::Peer>> program =
      peer::Start(std::move(spec), {.name = kPeerName, .farewell = kFarewell},
                  absl::StrCat("slot=", setup.lane, " "));
  if (program.ok()) return program;
  return absl::FailedPreconditionError(
      absl::StrCat("workers.command: ", program.status().message()));
}

}  // namespace

absl::StatusOr<std::string> Resident::Ask(const std::string& question, WorkCounter* work) const {
  return program->Ask(question, {options.turn_seconds, "workers.turn_seconds"}, {}, work);
}

absl::StatusOr<Resident> StartResident(const TrainerSetup& setup) {
  Resident resident{
      .options = setup.backend.program, .slot = setup.lane, .thread = std::this_thread::get_id()};
  const std::vector<LayoutPtr> layouts(kTurnVectors, setup.spec.layout);
  MACAW_ASSIGN_OR_RETURN(
      resident.memory, peer::SharedVectors::Make("macaw-program", layouts, Backing::kFileIfLarge));
  if (setup.backend.program.give_rows) {
    MACAW_ASSIGN_OR_RETURN(resident.rows, SharedRows::Make(setup));
  }
  resident.hello = HelloLine(setup, *resident.memory, resident.rows.get());
  MACAW_ASSIGN_OR_RETURN(resident.program,
                         StartProgram(setup, resident.memory->file(),
                                      resident.rows != nullptr ? resident.rows->file() : -1));
  absl::StatusOr<std::string> line = resident.Ask(resident.hello, setup.work);
  absl::Status status = line.status();
  if (status.ok()) {
    absl::StatusOr<Ready> ready = ParseReady(*line);
    status = ready.status();
    if (status.ok()) resident.ready = *std::move(ready);
  }
  if (!status.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("workers.command (", absl::StrJoin(setup.backend.program.command, " "),
                     ") did not start: ", status.message()));
  }
  Logger("program").Info(absl::StrCat("slot=", setup.lane, " ready name=\"", resident.ready.name,
                                      "\" corrections=", resident.ready.corrections,
                                      " evaluates=", resident.ready.evaluates,
                                      " outputs=", resident.ready.outputs));
  return resident;
}

void WaitingRoom::Give(Resident resident) {
  if (resident.slot != 0) return;                             // it was told another one
  if (resident.thread != std::this_thread::get_id()) return;  // its thread may end soon
  const absl::MutexLock lock(&mutex_);
  if (!waiting_.has_value()) waiting_ = std::move(resident);
}

std::optional<Resident> WaitingRoom::Take(const TrainerSetup& setup) {
  const absl::MutexLock lock(&mutex_);
  if (setup.lane != 0) return std::nullopt;
  std::optional<Resident> resident = std::exchange(waiting_, std::nullopt);
  if (!resident.has_value() || resident->options != setup.backend.program ||
      resident->hello != HelloLine(setup, *resident->memory, resident->rows.get())) {
    return std::nullopt;
  }
  return resident;
}

}  // namespace macaw::training::process
