#include "cli/simulate/opening_lines.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/simulate/backend.h"
#include "cli/simulate/figures.h"
#include "core/spelling.h"
#include "scheduler/cohort.h"

namespace macaw::cli {
std::string DataLine(const data::DatasetInfo& info) {
  std::string line = absl::StrCat(info.name, ": ", CountText(info.clients), " clients, ",
                                  CountText(info.train_examples), " training and ",
                                  CountText(info.test_examples), " central test examples");
  if (info.val_examples > 0)
    absl::StrAppend(&line, ", ", CountText(info.val_examples), " central validation examples");
  if (info.train_clients > 0 && info.train_clients < info.clients) {
    absl::StrAppend(&line, ", ", CountText(info.clients - info.train_clients),
                    " clients never train (held out or without training rows)");
  }
  if (info.mean_classes_per_client > 0) {
    absl::StrAppendFormat(&line, ", %.2f of %d classes per client on average",
                          info.mean_classes_per_client, info.classes);
  }
  return line;
}

std::string ModelLine(const Config& config, const models::ModelSpec& spec) {
  uint64_t frozen = 0;
  for (size_t i = 0; i < spec.frozen.size(); ++i)
    frozen += spec.frozen[i] ? spec.layout->entries()[i].size : 0;
  const std::string adapters =
      spec.adapters.empty() ? "" : absl::StrCat(", ", Counted(spec.adapters.size(), "adapter"));
  return absl::StrCat(config.run.model.name, ": ", CountText(spec.layout->count()), " parameters",
                      frozen > 0 ? absl::StrCat(" (", CountText(frozen), " frozen)") : "", adapters,
                      ", input [", absl::StrJoin(spec.input_shape, ", "), "], ", spec.outputs,
                      " outputs, ", Name(config.run.task));
}

std::string RoundsLine(const Config& config) {
  const worker::WorkersConfig& workers = config.node.workers;
  const scheduler::RoundSize size =
      scheduler::SizeOfRounds(config.run.cohort, TrainClients(config.run));
  return absl::StrCat(
      config.run.rounds, " of ", config.run.algorithm.name, ", ",
      size.least < size.most ? absl::StrCat(CountText(size.least), " or ") : "",
      CountText(size.most), " clients each, on ", workers.processes,
      workers.processes == 1 ? " process with " : " processes with ",
      Counted(SlotsHere(config), "slot"),
      workers.owners == 0 ? "" : absl::StrCat(" and ", Counted(workers.owners, "owner")));
}

}  // namespace macaw::cli
