#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "algorithms/around/registry.h"
#include "plan/attack.h"

namespace macaw::algorithms {

// Simulated attackers around a rule, which does not know of them: its hostile clients
// (HostileClients) send something else than what it concludes. Let u be what an honest client would
// send on a channel.
//
//   label-flip     scale·u, from labels y → classes − 1 − y; the rows are changed where they are
//                  loaded (data/label_map.h)
//   sign-flip      −scale·u
//   scaling        scale·u (Bagdasaryan et al. 2020, "How To Backdoor Federated Learning": model
//                  replacement)
//   free-rider     zeros, and on channels of the model's layout N(0, noise²) on each parameter, as
//                  a client does that has not trained (Fraboni, Vidal, Lorenzi 2021, "Free-rider
//                  Attacks on Model Aggregation in Federated Learning")
//   inner-product  −scale·μ, μ the mean over the round's honest clients (Xie, Koyejo, Gupta 2019,
//                  "Fall of Empires")
//   alie           μ − z·σ, σ the honest clients' deviation of each coordinate (Baruch, Baruch,
//                  Goldberg 2019, "A Little Is Enough")
//   min-max        μ + γ·p with the largest γ for which it is no farther from any honest client
//                  than two honest ones are from each other; p: −σ, −μ/‖μ‖ or −sign(μ)
//                  (Shejwalkar, Houmansadr 2021, "Manipulating the Byzantine")
//   min-sum        the same with the sum of its squared distances, at most the largest sum of an
//                  honest client
//   mimic          what the round's honest client with the smallest number sends (Karimireddy, He,
//                  Jaggi 2022, "Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing")
//   backdoor       scale·u, from rows of which a share has a trigger and the target class (Gu,
//                  Dolan-Gavitt, Garg 2017, "BadNets"; Bagdasaryan et al. 2020); the rows are
//                  changed where they are loaded (data/trigger.h)
//
// Every update is attacked. What a rule sends beside its updates (BesideUpdates), as FedNova's
// ‖a‖₁, and what clients send as batch-norm statistics, is what they would send honestly, for
// inner-product, alie, min-max and min-sum the honest mean, and for mimic that of whom it copies.
// A free-rider sends zeros as statistics, and beside updates what an honest client sends whose work
// has not moved the model: FedNova's ‖a‖₁ of its steps, q-FedAvg's h of a zero Δ, TERM's power. So
// it makes the mean shorter under each rule. μ and σ of a channel are taken as the channel combines
// clients: weighted where it is weighted, and plain where a rule collects updates; min-max and
// min-sum take plain ones (attack_rows.h), and a γ for each channel. A channel's bound does not
// hold what these kinds send, since that is made after the sums. In a round without an honest
// client they send zeros. A client that says its weight (api/reported_weight.h) says an honest one.
//
// A hostile client's state and metrics are those that the rule concludes from its honest work. A
// free-rider's state does not change, and its metrics are 0. In a phase in which the rule sends
// updates alone it has no stages; else it does the honest work, from which come its numbers.
//
// Adds the rule metrics `attackers`, the hostile ones among a round's counted clients, and where
// some of a round's clients are hostile and some are not, `attack_z`, the z of alie, and
// `attack_gamma`, the γ of min-max and min-sum on the rule's first channel.
// `own`: the rule without what stands around it inside the attack, such as a codec; by default
// `rule`.
Description Attacked(Description rule, const AttackConfig& attack, HostileClients hostile,
                     const Description* own = nullptr);

// The channels up of a rule, `own` its schema, that are no updates of the model: those of another
// layout, where a channel has the model's layout. A rule that sends nothing of the model's layout,
// such as sums over rows, sends updates alone.
std::vector<std::string> BesideUpdates(const Schema& own, const LayoutPtr& model);

// What the halves below share. Immutable.
struct Attack {
  AttackConfig config;
  HostileClients hostile;

  bool Hits(ClientId client) const { return hostile.Contains(client); }
};

// Channels that the kinds which know honest updates add, from which the server half makes what
// hostile clients would have sent: how many clients are honest, which part of the weight is theirs,
// and for alie the squares of what they send. A hostile client sends zeros on all channels. So
// memory does not grow with the clients; but min-max, min-sum and mimic need each honest update,
// and collect them. A channel of the rule's that collects vectors needs none: there the rows are
// replaced.
inline constexpr char kHonestCount[] = "attack_honest";          // plain mean of 1 or 0
inline constexpr char kHonestWeight[] = "attack_honest_weight";  // weighted mean of 1 or 0
std::string SquaresOf(absl::string_view channel);                // mean of u², in f64
std::string EachOf(absl::string_view channel);                   // each u
inline constexpr char kAttackersMetric[] = "attackers";
inline constexpr char kDeviationsMetric[] = "attack_z";
inline constexpr char kGammaMetric[] = "attack_gamma";

// The rule's schema with these channels and the metric.
Schema WithAttack(Schema schema, const AttackConfig& attack);

// `beside`: of BesideUpdates, for both halves.
std::unique_ptr<ClientAlgorithm> MakeAttackedClient(std::unique_ptr<ClientAlgorithm> inner,
                                                    std::shared_ptr<const Attack> attack,
                                                    const Schema& rule, LayoutPtr model,
                                                    std::vector<std::string> beside);
// For the omniscient kinds; the other ones leave the server half alone.
std::unique_ptr<ServerAlgorithm> MakeAttackedServer(std::unique_ptr<ServerAlgorithm> inner,
                                                    std::shared_ptr<const Attack> attack,
                                                    Schema rule, std::vector<std::string> beside);

// alie's z_max: with n clients, m of them hostile, Φ⁻¹((n − m − s)/(n − m)), s = ⌊n/2 + 1⌋ − m the
// honest clients that must be outvoted for a majority; at least 0, and at most 3 (a hostile
// majority outvotes without them).
double AlieDeviations(double n, double m);

}  // namespace macaw::algorithms
