#include "cli/simulate/opening_lines.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/simulate/backend.h"
#include "core/spelling.h"
#include "scheduler/cohort.h"

namespace macaw::cli {
namespace {

// A count with thousands marked: 44,426.
std::string Grouped(uint64_t number) {
  std::string text = absl::StrCat(number);
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<size_t>(at), 1, ',');
  return text;
}

}  // namespace

std::string DataLine(const data::DatasetInfo& info) {
  std::string line = absl::StrCat(info.name, ": ", Grouped(info.clients), " clients, ",
                                  Grouped(info.train_examples), " training and ",
                                  Grouped(info.test_examples), " central test examples");
  if (info.val_examples > 0)
    absl::StrAppend(&line, ", ", Grouped(info.val_examples), " central validation examples");
  if (info.train_clients > 0 && info.train_clients < info.clients) {
    absl::StrAppend(&line, ", ", Grouped(info.clients - info.train_clients),
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
  return absl::StrCat(config.run.model.name, ": ", Grouped(spec.layout->count()), " parameters",
                      frozen > 0 ? absl::StrCat(" (", Grouped(frozen), " frozen)") : "", adapters,
                      ", input [", absl::StrJoin(spec.input_shape, ", "), "], ", spec.outputs,
                      " outputs, ", Name(config.run.task));
}

std::string RoundsLine(const Config& config) {
  const worker::WorkersConfig& workers = config.node.workers;
  const scheduler::RoundSize size =
      scheduler::SizeOfRounds(config.run.cohort, TrainClients(config.run));
  return absl::StrCat(
      config.run.rounds, " of ", config.run.algorithm.name, ", ",
      size.least < size.most ? absl::StrCat(Grouped(size.least), " or ") : "", Grouped(size.most),
      " clients each, on ", workers.processes,
      workers.processes == 1 ? " process with " : " processes with ",
      Counted(SlotsHere(config), "slot"),
      workers.owners == 0 ? "" : absl::StrCat(" and ", Counted(workers.owners, "owner")));
}

}  // namespace macaw::cli
