#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "algorithms/around/registry.h"
#include "sdk/testing/plain_trainer.h"

namespace macaw::algorithms {

struct TestPopulationClient {
  std::shared_ptr<const Objective> objective;
  uint32_t examples = 1;
  uint32_t steps = 0;  // > 0: for this client only
};

// The four clients of the example Q4, with 1, 2, 3 and 4 examples.
std::vector<TestPopulationClient> Q4();
const Numbers& Q4Optimum();         // of Σ p_i f_i
const Numbers& Q4UniformOptimum();  // of the plain mean

// A federation in one function call: Configure → Prepare → trainer → Conclude → exact sum → Apply,
// phase after phase. What a client keeps in a phase its next phase sees. Stragglers do a part of
// their work (Options::cohort). The description's checks are not run; MakeSchema has tests of its
// own. The tests of the built-in rules and of plug-ins both use it (sdk/README.md). An error of
// the test itself ends the process.
class RoundLoop {
 public:
  struct Options {
    uint32_t steps = 7;  // local steps; 0: `epochs` times the client's examples, which differ
    uint32_t epochs = 1;
    std::map<std::string, ParameterValue> parameters = {};
    DType dtype = DType::kF64;
    Numbers start = {0, 0};
    double lr = 0.1;
    double momentum = 0;
    double weight_decay = 0;
    double clip_norm = 0;
    Schedule lr_schedule = {};
    double qsr = 0;
    LayoutPtr layout = nullptr;  // null: one tensor of the same size as start
    CohortConfig cohort = {};
    uint64_t seed = 1;
    bool asynchronous = false;
  };
  RoundLoop(const Description& description, std::vector<TestPopulationClient> population,
            const Options& options);

  // One round with these clients, in this order. For clients in `lost`, neither the contribution
  // nor the state counts, as if their worker had died. With Options::asynchronous a client may have
  // begun `staleness` rounds before, by client; there must have been as many.
  absl::Status Round(const std::vector<size_t>& cohort, const std::set<size_t>& lost = {},
                     const std::map<size_t, uint32_t>& staleness = {});
  // Rounds with all clients.
  absl::Status Rounds(int count);
  // Rounds with `size` clients each, drawn for every round.
  absl::Status SampledRounds(int count, uint64_t size);

  Numbers Model() const { return NumbersOf(Whole(server_->Model()).view()); }
  Digest ModelDigest() const { return DigestOfValues(Whole(server_->Model()).view()); }
  ServerAlgorithm& server() { return *server_; }
  const Setup& setup() const { return setup_; }
  const Schema& schema() const { return schema_; }
  int phases() const { return phases_; }  // of the last round
  // The rows that passed through the model in a client's turn of the last round, in all phases, and
  // what the rule says of it (Description::passes). An example is local.batch_size rows, so that a
  // step an example is a batch.
  double Passed(size_t client) const { return passed_.at(client); }
  double SaidToPass(size_t client) const { return said_.at(client); }
  // State item `item` of a client; zero before its first turn.
  Numbers State(size_t client, size_t item) const { return NumbersOf(StateOf(client, item)); }
  ConstVectorView StateOf(size_t client, size_t item) const;
  // The client's share p_i of the population's weight.
  double Share(size_t client) const;
  // A vector of the server's saved state.
  Numbers Saved(const std::string& name) const;
  // The server's result, which would be evaluated and written.
  Numbers Result() const { return NumbersOf(Whole(server_->Result()).view()); }
  // The point at which a client's rows are evaluated.
  Numbers Personal(size_t client);
  // The rule's metrics in the last round, by name; of several phases the last one's.
  const std::map<std::string, double>& metrics() const { return metrics_; }
  // The client's state is lost: its next turn is as its first one.
  void LoseState(size_t client) { states_[client].clear(); }
  // No client has a state any more, and the server half forgets its sums of them, as after a round
  // in which states were lost (BeginsAnew).
  absl::Status ForgetStates();
  // Continues with another loop's server and client states, as a resumed run does.
  absl::Status ResumeFrom(const RoundLoop& other);

 private:
  // A client that is named m times trains once and counts m times.
  struct Turn {
    size_t client;
    uint32_t multiplicity;
  };
  static std::vector<Turn> TurnsOf(const std::vector<size_t>& cohort);
  // The model of which the server half has this (Schema::parts).
  FlatVector Whole(ConstVectorView sent) const;
  ServerContext About(Phase phase);
  uint64_t RowsOf(size_t client) const;
  ClientContext Context(size_t client, const std::vector<FlatVector>& kept,
                        std::span<const ConstVectorView> broadcast, uint32_t staleness = 0);

  std::vector<TestPopulationClient> population_;
  Setup setup_;
  Schema schema_;
  FlatVector base_;  // of Schema::parts
  std::unique_ptr<ServerAlgorithm> server_;
  std::unique_ptr<ClientAlgorithm> client_;
  std::unique_ptr<PlainTrainer> trainer_;
  Workspace workspace_;
  std::vector<std::vector<FlatVector>> states_;  // by client; empty before the first turn
  std::vector<FlatVector> zero_state_;
  std::vector<ConstVectorView> state_views_;
  std::map<std::string, double> metrics_;
  std::vector<FlatVector> models_;  // before each round, as the server half has them; of
                                    // asynchronous ones
  RowsOfTurn passes_;
  std::map<size_t, double> passed_, said_;  // by client
  uint32_t round_ = 0;
  int phases_ = 0;
};

// The largest absolute difference.
double Distance(const Numbers& a, const Numbers& b);

// A built-in algorithm by name.
Description Builtin(const std::string& name);
// An algorithm of a plug-in, given its shared library.
absl::StatusOr<Description> OfPlugin(const std::string& library, const std::string& name);

}  // namespace macaw::algorithms
