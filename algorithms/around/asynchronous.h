#pragma once

#include "algorithms/api/description.h"
#include "plan/run_plan.h"

namespace macaw::algorithms {

// Rounds that do not wait for each other, around any rule that says Description::asynchronous. Such
// a round counts clients that began from older models; τ is by how many steps a client's is older
// (ClientContext::staleness), and s(τ) = (1 + τ)^−a.
//
//   buffered   client: Δ_i ← s(τ_i)·Δ_i           (Nguyen et al. 2022, "Federated Learning with
//              server: x ← x + η_g·mean(Δ_i)       Buffered Asynchronous Aggregation", algorithm 1)
//
// The mean is by the clients' weights, which the discount does not change: with equal weights it is
// the paper's Σ s(τ_i) Δ_i / K, and not Σ s(τ_i) Δ_i / Σ s(τ_i). Buffers of the model (running
// statistics) are not discounted.
//
//   mixed      server: x ← x + η_g·α_τ·(x_b + Δ − x),   α_τ = α·s(τ)   (Xie, Koyejo, Gupta 2019,
//                                                       "Asynchronous Federated Optimization")
//
// for rounds of one client, which began from the model x_b, so that its own model is x_b + Δ.
//
//   overlapped server: x_t ← x_{t−1} + η_g·mean(y_i − x_{t−2})      (Sun et al. 2024, "CO2")
//
// whose clients all trained from the model of the round before the last one. With FedAvgM it is
// CO2, whose staleness gap is the constant 1 in its published code.
//
// The discount is made by the client, before a codec or a clip sees the update, so what the server
// adds is what the client sent, and the codec's feedback is right.
//
// Its check refuses, naming the keys, what such rounds cannot have: see CheckAsynchronous.
Description Asynchronous(const Description& rule, const RunPlan& run);

// Refuses what arrivals cannot be: cohorts that promise something of a round, rules of [round] that
// close rounds, [privacy], factors that go with one round.
absl::Status CheckAsynchronous(const RunPlan& run);

}  // namespace macaw::algorithms
