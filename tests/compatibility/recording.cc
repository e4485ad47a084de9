#include "tests/compatibility/recording.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "absl/strings/escaping.h"

namespace macaw::compatibility {
namespace {

std::string BytesIn(const nlohmann::json& text) {
  std::string bytes;
  if (!absl::Base64Unescape(text.get<std::string>(), &bytes))
    throw std::runtime_error("a recording's bytes are not Base64");
  return bytes;
}

}  // namespace

std::string ToJson(const Recording& recording) {
  nlohmann::ordered_json json = {{"version", recording.version}};
  for (const Message& message : recording.messages) {
    json["messages"].push_back({{"type", message.type},
                                {"bytes", absl::Base64Escape(message.bytes)},
                                {"text", message.text}});
  }
  for (const Call& call : recording.session) {
    json["session"].push_back(
        {{"method", call.method}, {"request", absl::Base64Escape(call.request)}});
  }
  for (const auto& [path, bytes] : recording.killed.files)
    json["killed"]["files"][path] = absl::Base64Escape(bytes);
  json["killed"]["digest"] = recording.killed.digest;
  return json.dump(1) + "\n";
}

Recording FromJson(const std::string& json) {
  const nlohmann::json parsed = nlohmann::json::parse(json);
  Recording recording{.version = parsed.at("version").get<std::string>()};
  for (const auto& message : parsed.at("messages")) {
    recording.messages.push_back({.type = message.at("type").get<std::string>(),
                                  .bytes = BytesIn(message.at("bytes")),
                                  .text = message.at("text").get<std::string>()});
  }
  for (const auto& call : parsed.at("session")) {
    recording.session.push_back(
        {.method = call.at("method").get<std::string>(), .request = BytesIn(call.at("request"))});
  }
  for (const auto& [path, bytes] : parsed.at("killed").at("files").items())
    recording.killed.files[path] = BytesIn(bytes);
  recording.killed.digest = parsed.at("killed").at("digest").get<std::string>();
  return recording;
}

}  // namespace macaw::compatibility
