#include "data/declared.h"

#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "core/status.h"
#include "core/utf8.h"

namespace macaw::data {
namespace {

using Json = nlohmann::json;

constexpr std::array<const char*, 3> kSplitKeys = {"train", "validation", "test"};

struct DeclaredClient {
  std::string name;
  std::array<uint32_t, 3> rows{};  // by split
};

class Declared final : public Dataset {
 public:
  Declared(DatasetInfo info, std::vector<DeclaredClient> clients)
      : info_(std::move(info)), clients_(std::move(clients)) {}

  const DatasetInfo& info() const override { return info_; }
  uint32_t Examples(ClientId client, Split split) const override {
    return Exists(client) ? clients_[client.value].rows[static_cast<size_t>(split)] : 0;
  }
  absl::StatusOr<Rows> Client(ClientId client, Split split) const override {
    if (!Exists(client))
      return absl::NotFoundError(absl::StrCat("client ", client.value, " does not exist"));
    Rows rows;
    rows.block.type = info_.feature_type;
    rows.block.count = Examples(client, split);
    rows.client_name = ClientName(client);
    return rows;
  }
  Rows CentralTest() const override { return {}; }
  std::string ClientName(ClientId client) const override {
    return Exists(client) ? clients_[client.value].name : Dataset::ClientName(client);
  }

 private:
  bool Exists(ClientId client) const { return client.value < clients_.size(); }

  const DatasetInfo info_;
  const std::vector<DeclaredClient> clients_;
};

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  absl::StatusOr<std::unique_ptr<Dataset>> Read() {
    MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path_));
    MACAW_RETURN_IF_ERROR(CheckUtf8(text, path_));
    const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) return Wrong("it is not a JSON object");
    MACAW_RETURN_IF_ERROR(
        CheckKeys(json, "", {"clients", "input_shape", "classes", "features", "digest"}));
    DatasetInfo info{.name = absl::StrCat("declared ", path_), .declared = true};
    MACAW_RETURN_IF_ERROR(ReadShape(json, info));
    MACAW_ASSIGN_OR_RETURN(std::vector<DeclaredClient> clients, ReadClients(json));
    Digester digester;
    digester.Add(absl::string_view("macaw declared"));
    info.clients = clients.size();
    for (const DeclaredClient& client : clients) {
      info.train_clients += client.rows[0] > 0 ? 1 : 0;
      info.train_examples += client.rows[0];
      digester.Add(absl::string_view(client.name));
      for (const uint32_t rows : client.rows) digester.Add(uint64_t{rows});
    }
    for (const int64_t extent : info.input_shape) digester.Add(static_cast<uint64_t>(extent));
    digester.Add(static_cast<uint64_t>(info.classes)).Add(static_cast<uint64_t>(info.feature_type));
    if (const auto digest = json.find("digest"); digest != json.end()) {
      if (!digest->is_string()) return Wrong("\"digest\" must be a text");
      digester.Add(absl::string_view(digest->get_ref<const std::string&>()));
    }
    info.digest = digester.Finish();
    return std::make_unique<Declared>(std::move(info), std::move(clients));
  }

 private:
  template <typename... Why>
  absl::Status Wrong(const Why&... why) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": ", why...));
  }

  absl::Status CheckKeys(const Json& object, const std::string& of,
                         const std::set<std::string>& known) const {
    for (const auto& [key, value] : object.items()) {
      if (!known.contains(key)) return Wrong("unknown key \"", key, "\"", of);
    }
    return absl::OkStatus();
  }

  absl::Status ReadShape(const Json& json, DatasetInfo& info) const {
    const auto shape = json.find("input_shape");
    bool good = shape != json.end() && shape->is_array() && !shape->empty();
    for (size_t i = 0; good && i < shape->size(); ++i) {
      good = (*shape)[i].is_number_unsigned() && (*shape)[i].get<uint64_t>() > 0 &&
             (*shape)[i].get<uint64_t>() <= std::numeric_limits<int32_t>::max();
      if (good) info.input_shape.push_back((*shape)[i].get<int64_t>());
    }
    if (!good)
      return Wrong("\"input_shape\" must be the sizes of one example, such as [1, 28, 28]");
    if (const auto classes = json.find("classes"); classes != json.end()) {
      if (!classes->is_number_unsigned() ||
          classes->get<uint64_t>() > std::numeric_limits<int32_t>::max()) {
        return Wrong("\"classes\" must be a number of classes");
      }
      info.classes = classes->get<int64_t>();
    }
    const std::string features = json.contains("features") && json["features"].is_string()
                                     ? json["features"].get<std::string>()
                                 : json.contains("features") ? ""
                                                             : "float32";
    if (features == "float32") {
      info.feature_type = FeatureType::kF32;
    } else if (features == "uint8") {
      info.feature_type = FeatureType::kU8;
    } else if (features == "int32") {
      info.feature_type = FeatureType::kI32;
    } else {
      return Wrong("\"features\" must be \"float32\", \"uint8\" or \"int32\"");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<DeclaredClient>> ReadClients(const Json& json) const {
    const auto list = json.find("clients");
    if (list == json.end() || !list->is_array() || list->empty())
      return Wrong("\"clients\" must be a list of {\"name\": ..., \"train\": rows}");
    std::vector<DeclaredClient> clients;
    std::set<std::string> names;
    for (const Json& item : *list) {
      if (!item.is_object() || !item.contains("name") || !item["name"].is_string() ||
          item["name"].get_ref<const std::string&>().empty()) {
        return Wrong("client ", clients.size(), " has no \"name\"");
      }
      DeclaredClient client{.name = item["name"].get<std::string>()};
      const std::string of = absl::StrCat(" of client \"", client.name, "\"");
      MACAW_RETURN_IF_ERROR(CheckKeys(item, of, {"name", "train", "validation", "test"}));
      if (!names.insert(client.name).second) return Wrong("two clients are \"", client.name, "\"");
      for (size_t split = 0; split < kSplitKeys.size(); ++split) {
        const auto rows = item.find(kSplitKeys[split]);
        if (rows == item.end()) continue;
        if (!rows->is_number_unsigned() ||
            rows->get<uint64_t>() > std::numeric_limits<uint32_t>::max()) {
          return Wrong("\"", kSplitKeys[split], "\"", of, " must be a number of rows");
        }
        client.rows[split] = rows->get<uint32_t>();
      }
      clients.push_back(std::move(client));
    }
    return clients;
  }

  const std::string& path_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> ReadDeclared(const std::string& path) {
  return Reader(path).Read();
}

}  // namespace macaw::data
