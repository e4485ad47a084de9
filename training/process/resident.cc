#include "training/process/resident.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/logging.h"
#include "core/status.h"

namespace macaw::training::process {

absl::StatusOr<Resident> StartResident(const TrainerSetup& setup) {
  Resident resident{
      .options = setup.backend.program, .slot = setup.lane, .thread = std::this_thread::get_id()};
  MACAW_ASSIGN_OR_RETURN(resident.memory, SharedVectors::Make(setup.spec.layout));
  if (setup.backend.program.give_rows) {
    MACAW_ASSIGN_OR_RETURN(resident.rows, SharedRows::Make(setup));
  }
  resident.hello = HelloLine(setup, *resident.memory, resident.rows.get());
  MACAW_ASSIGN_OR_RETURN(
      resident.program,
      Program::Start(setup.backend.program, resident.memory->file(),
                     resident.rows != nullptr ? resident.rows->file() : -1, setup.lane));
  absl::StatusOr<std::string> line = resident.program->Ask(resident.hello, setup.work);
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
