#pragma once

#include <memory>
#include <string>

#include "data/dataset.h"
#include "server/coordinator.h"

// A small real run: logistic regression on generated clients.
namespace macaw::worker::testing_support {

// Twelve clients with 50 to 80 examples.
std::unique_ptr<data::Dataset> SyntheticClients();
// Six of them a round, evaluated every second round.
RunConfig SyntheticRun(const data::Dataset& dataset, uint32_t rounds);

class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

const algorithms::Registry& Registry();
std::unique_ptr<server::Coordinator> StartServer(server::Options options);

}  // namespace macaw::worker::testing_support
