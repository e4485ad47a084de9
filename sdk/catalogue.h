#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "algorithms/around/registry.h"
#include "data/dataset.h"
#include "data/options.h"
#include "models/spec.h"

namespace macaw::sdk {

// A model by name: its layers, as a user would write them, for an input shape and a number of
// outputs.
struct ModelSource {
  std::string name;
  std::string summary;  // a line for `macaw models`
  std::function<absl::StatusOr<std::vector<std::string>>(const std::vector<int64_t>& input_shape,
                                                         int64_t outputs)>
      layers;
};

// A source of examples by name, the value of `data.source`.
struct DataSource {
  std::string name;
  std::string summary;
  std::function<absl::StatusOr<std::unique_ptr<data::Dataset>>(const data::DataOptions&,
                                                               const data::PartitionOptions&)>
      open;
};

// What a program can run by name: the built-ins and what plug-ins add. Filled in main() before a
// configuration is read, read-only afterwards.
class Catalogue {
 public:
  static Catalogue Builtins();

  // Each fails if the name is taken.
  absl::Status AddAlgorithm(algorithms::Description description);
  absl::Status AddModel(ModelSource model);
  absl::Status AddDataSource(DataSource source);

  const algorithms::Registry& algorithms() const { return algorithms_; }
  const std::map<std::string, ModelSource>& models() const { return models_; }        // of plug-ins
  const std::map<std::string, DataSource>& data_sources() const { return sources_; }  // of plug-ins

  // Like data::OpenDataset, with the sources of plug-ins.
  absl::StatusOr<std::unique_ptr<data::Dataset>> OpenDataset(
      const data::DataOptions& data, const data::PartitionOptions& partition) const;

  // The loaded plug-ins as "NAME VERSION DIGEST"; all nodes of a run must have the same.
  const std::vector<std::string>& plugins() const { return plugins_; }

 private:
  friend class Loader;

  algorithms::Registry algorithms_;
  std::map<std::string, ModelSource> models_;
  std::map<std::string, DataSource> sources_;
  std::vector<std::string> plugins_;
  std::string Whose() const { return "plug-in \"" + loading_ + "\""; }
  std::string loading_;  // the plug-in that is being loaded; what it adds is guarded
};

}  // namespace macaw::sdk
