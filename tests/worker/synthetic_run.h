#pragma once

#include <memory>
#include <string>

#include "data/dataset.h"
#include "server/coordinator.h"
#include "testing/temporary_folder.h"
#include "training/backends.h"

// A small real run: logistic regression on generated clients.
namespace macaw::worker::fixtures {

using macaw::testing_support::TemporaryFolder;

// Twelve clients with 50 to 80 examples.
std::unique_ptr<data::Dataset> SyntheticClients();
// Six of them a round, evaluated every second round.
RunPlan SyntheticRun(const data::Dataset& dataset, uint32_t rounds);
// What a server of that run in `folder` is started with.
server::Options OptionsOf(RunPlan run, const std::string& folder);

const algorithms::Registry& Registry();
// Back ends without modules.
training::Backends& OnlyFused();
std::unique_ptr<server::Coordinator> StartServer(server::Options options,
                                                 const algorithms::Registry& registry = Registry());

}  // namespace macaw::worker::fixtures
