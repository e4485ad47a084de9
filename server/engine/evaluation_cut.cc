#include "server/engine/evaluation_cut.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/random.h"

namespace macaw::server {
namespace {

using fleet::EvaluationKind;

// config.sample of the clients, drawn for this round; `group` tells draws of the same round apart.
std::vector<uint64_t> SampleOf(std::vector<uint64_t> clients, Round round, uint64_t sample,
                               uint64_t seed, uint64_t group) {
  if (sample == 0 || sample >= clients.size()) return clients;
  RandomStream stream(
      {.seed = seed, .purpose = Purpose::kEvaluation, .round = round, .extra = group});
  std::vector<uint64_t> drawn = SampleWithoutReplacement(stream, clients.size(), sample);
  std::ranges::sort(drawn);
  for (uint64_t& client : drawn) client = clients[client];
  return drawn;
}

// Whether the client has rows of a kind that is evaluated.
bool HasRowsOf(const EvaluationConfig& config, bool heldout, const Roster& roster,
               ClientId client) {
  return ((heldout || config.clients) && roster.TestRowsOf(client) > 0) ||
         (!heldout && config.validation && roster.ValidationRowsOf(client) > 0);
}

// Leaves out the clients that have nothing to evaluate, unless none has.
std::vector<uint64_t> ThoseWithRows(const EvaluationConfig& config, bool heldout,
                                    const Roster& roster, std::vector<uint64_t> clients) {
  const auto none = [&](uint64_t client) {
    return !HasRowsOf(config, heldout, roster, ClientId(client));
  };
  if (!std::ranges::all_of(clients, none)) std::erase_if(clients, none);
  return clients;
}

// Adds chunks of the rows from `first` on.
void CutRows(EvaluationQueue queue, const fleet::EvaluationTask& task, uint64_t first,
             uint64_t rows, uint64_t chunk, std::vector<CutTask>& tasks) {
  for (uint64_t begin = first; begin < first + rows; begin += chunk) {
    CutTask& cut = tasks.emplace_back(CutTask{.task = task, .queue = queue});
    cut.task.begin = begin;
    cut.task.end = std::min<uint64_t>(begin + chunk, first + rows);
  }
}

// Adds the tasks of the test and validation rows of these clients.
void CutClients(const EvaluationConfig& config, bool personal_models, const Roster& roster,
                const std::vector<uint64_t>& clients, bool heldout, std::vector<CutTask>& tasks) {
  const auto add = [&](EvaluationKind kind) {
    for (const uint64_t id : clients) {
      const ClientId client(id);
      tasks.push_back({.task = {.kind = kind, .client = client, .place = roster.PlaceOf(client)},
                       .queue = QueueOf(roster.HoldingOf(client)),
                       .heldout = heldout,
                       .group = roster.GroupOf(client)});
    }
  };
  if (config.clients && !heldout) add(EvaluationKind::kClientTest);
  if (heldout || (config.clients && personal_models)) add(EvaluationKind::kClientTestGlobal);
  if ((heldout || config.clients) && config.fine_tune.steps > 0) add(EvaluationKind::kClientTuned);
  if (config.validation && !heldout) add(EvaluationKind::kClientValidation);
}

}  // namespace

std::vector<CutTask> CutEvaluation(const EvaluationConfig& config, const CutOptions& options,
                                   const Roster& roster, const HostileClients& hostile) {
  std::vector<CutTask> tasks;
  if (config.central) tasks = CutCentralTest(config, options.groups, roster.central_test_rows(), 0);
  const uint64_t validation = roster.central_val_rows();
  for (uint64_t group = 0; config.central_validation && group < options.groups; ++group) {
    CutRows(CentralQueue(), {.kind = EvaluationKind::kCentralValidation}, group * validation,
            validation, config.chunk, tasks);
  }
  if (config.central && options.backdoor) {
    CutRows(CentralQueue(), {.kind = EvaluationKind::kCentralBackdoor}, 0,
            roster.central_test_rows(), config.chunk, tasks);
  }
  const bool of_clients = config.clients || config.validation || config.heldout;
  std::vector<uint64_t> clients, heldout;
  for (uint64_t client = 0; of_clients && client < roster.clients(); ++client) {
    if (hostile.Contains(ClientId(client))) continue;
    const bool apart = config.heldout && roster.rows()[client] == 0;
    (apart ? heldout : clients).push_back(client);
  }
  const auto cut = [&](std::vector<uint64_t> of, bool apart) {
    if (config.sample > 0) of = ThoseWithRows(config, apart, roster, std::move(of));
    of = SampleOf(std::move(of), options.round, config.sample, options.seed, apart ? 1 : 0);
    CutClients(config, options.personal_models, roster, of, apart, tasks);
  };
  cut(std::move(clients), /*apart=*/false);
  cut(std::move(heldout), /*apart=*/true);
  for (ClientId client; config.train && client.value < roster.clients(); ++client.value) {
    CutRows(
        QueueOf(roster.HoldingOf(client)),
        {.kind = EvaluationKind::kClientTrain, .client = client, .place = roster.PlaceOf(client)},
        0, roster.rows()[client.value], config.chunk, tasks);
  }
  return tasks;
}

std::vector<CutTask> CutCentralTest(const EvaluationConfig& config, uint32_t groups, uint64_t rows,
                                    size_t of) {
  std::vector<CutTask> tasks;
  for (uint64_t group = 0; group < groups; ++group) {
    CutRows(CentralQueue(), {.kind = EvaluationKind::kCentralTest}, group * rows, rows,
            config.chunk, tasks);
  }
  for (CutTask& task : tasks) task.of = of;
  return tasks;
}

std::vector<CutTask> CutStates(const VersionIndex& versions, const Roster& roster) {
  std::vector<CutTask> tasks;
  for (uint64_t page = 0; page < versions.pages(); ++page) {
    std::map<HoldingId, std::vector<Attempt>> states;
    for (const Attempt& state : versions.Page(page))
      states[roster.HoldingOf(state.client)].push_back(state);
    for (auto& [holding, held] : states) {
      tasks.push_back({.task = {.kind = EvaluationKind::kStateDigest, .states = std::move(held)},
                       .queue = QueueOf(holding)});
    }
  }
  return tasks;
}

}  // namespace macaw::server
