#include "cli/process/callers.h"

#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/files.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

using Json = nlohmann::json;

std::string NewToken() {
  std::random_device entropy;  // the system's
  std::string token;
  for (int i = 0; i < 4; ++i) absl::StrAppendFormat(&token, "%08x", entropy());
  return token;
}

}  // namespace

std::string Callers::Add(const std::string& node, std::vector<std::string> owns) {
  std::string token = NewToken();
  by_token_[token] = std::make_shared<const fleet::Caller>(fleet::Caller{
      .role = fleet::Role::kNode, .node = node, .owns_any = owns.empty(), .owns = std::move(owns)});
  return token;
}

absl::Status Callers::Write(const std::string& path) const {
  Json list = Json::array();
  for (const auto& [token, caller] : by_token_)
    list.push_back({{"token", token}, {"node", caller->node}, {"owns", caller->owns}});
  return AtomicWriteFile(path, list.dump(1));
}

absl::StatusOr<Callers> Callers::Read(const std::string& path) {
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  try {
    Callers callers;
    for (const Json& entry : Json::parse(text)) {
      fleet::Caller caller{.role = fleet::Role::kNode,
                           .node = entry.at("node").get<std::string>(),
                           .owns = entry.value("owns", std::vector<std::string>())};
      caller.owns_any = caller.owns.empty();
      const std::string token = entry.at("token");
      if (caller.node.empty() || token.size() < 16) {
        return absl::InvalidArgumentError(absl::StrCat(
            path, ": an entry needs a node's name and a token of 16 characters or more"));
      }
      if (!callers.by_token_
               .emplace(token, std::make_shared<const fleet::Caller>(std::move(caller)))
               .second)
        return absl::InvalidArgumentError(absl::StrCat(path, ": two nodes have the same token"));
    }
    return callers;
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, R"( is not a list of {"node": NAME, "token": SECRET}: )", error.what()));
  }
}

fleet::CallerPtr Callers::Identify(absl::string_view token) const {
  static const auto stranger =
      std::make_shared<const fleet::Caller>(fleet::Caller{.role = fleet::Role::kStranger});
  const auto it = by_token_.find(token);
  return it != by_token_.end() ? it->second : stranger;
}

}  // namespace macaw::cli
