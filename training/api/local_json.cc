#include "training/api/local_json.h"

namespace macaw::training {

peer::Json ToJson(const LocalConfig& local) {
  static const settings::Section<LocalConfig> section = LocalSection();
  const peer::Json empty_list = peer::Json::array();
  return peer::ToJson(section, local, empty_list, "lr_schedule.");
}

}  // namespace macaw::training
