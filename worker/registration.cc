#include "worker/registration.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "core/digest.h"
#include "core/status.h"

namespace macaw::worker {
namespace {

// Zero: there are no names.
Digest DigestOfNames(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  Digester digester;
  for (const std::string& name : names) digester.Add(absl::string_view(name));
  return digester.Finish();
}

std::vector<std::string> NamesOf(const data::Dataset& dataset) {
  std::vector<std::string> names;
  for (ClientId client; client.value < dataset.info().clients; ++client.value)
    names.push_back(dataset.ClientName(client));
  return names;
}

}  // namespace

absl::StatusOr<fleet::ClientTable> TableOf(const data::Dataset& dataset, bool by_name) {
  const data::DatasetInfo& info = dataset.info();
  fleet::ClientTable table;
  if (by_name) {
    table.names = NamesOf(dataset);
    MACAW_RETURN_IF_ERROR(fleet::CheckNames(table.names));
  }
  const auto column = [&](data::Split split) {
    std::vector<uint32_t> rows;
    for (ClientId client; client.value < info.clients; ++client.value)
      rows.push_back(dataset.Examples(client, split));
    return std::ranges::all_of(rows, [](uint32_t count) { return count == 0; })
               ? std::vector<uint32_t>()
               : rows;
  };
  table.test_rows = column(data::Split::kTest);
  table.validation_rows = column(data::Split::kValidation);
  for (ClientId client; client.value < info.clients; ++client.value) {
    table.rows.push_back(dataset.Examples(client, data::Split::kTrain));
    if (info.train_tokens == 0) continue;
    table.tokens.push_back(0);
    if (table.rows.back() == 0) continue;
    MACAW_ASSIGN_OR_RETURN(const data::Rows rows, dataset.Client(client, data::Split::kTrain));
    table.tokens.back() =
        static_cast<uint32_t>(std::min<uint64_t>(data::TokensOf(rows), UINT32_MAX));
  }
  return table;
}

absl::StatusOr<fleet::RegisterRequest> RequestFor(const Options& options,
                                                  const data::Dataset& dataset,
                                                  const RunningMarker& marker) {
  std::random_device entropy;  // identifies this process; does not influence a result
  const data::DatasetInfo& info = dataset.info();
  MACAW_ASSIGN_OR_RETURN(const fleet::ClientTable table, TableOf(dataset, options.by_name));
  return fleet::RegisterRequest{
      .name = options.name,
      .incarnation = (uint64_t{entropy()} << 32) | entropy(),
      .slots = options.slots,
      .input_shape = info.input_shape,
      .classes = info.classes,
      .data_digest = info.digest,
      .clients = info.clients,
      .table = fleet::Blob::Of(table.Encode()),
      .owner = options.owner,
      .central_test_rows = info.test_examples,
      .central_val_rows = info.val_examples,
      .central_test_digest = info.test_digest.IsZero() ? info.digest : info.test_digest,
      .died_running = marker.died_running(),
      .volatile_state = options.state.ends_with_process(),
      .program = options.program,
      .feature_names = DigestOfNames(info.feature_names),
      .class_names = DigestOfNames(info.class_names),
      .arrives = true};
}

uint64_t LargestClient(const data::Dataset& dataset) {
  uint64_t largest = 0;
  for (ClientId client; client.value < dataset.info().clients; ++client.value)
    largest = std::max<uint64_t>(largest, dataset.Examples(client, data::Split::kTrain));
  return largest;
}

}  // namespace macaw::worker
