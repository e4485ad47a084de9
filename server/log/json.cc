#include "server/log/json.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "server/log/fields.h"

namespace macaw::server::log {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string FenceText(const Fence& fence) { return absl::StrCat(fence.epoch, ".", fence.counter); }

template <typename T>
OrderedJson ValueOf(const T& value) {
  if constexpr (requires { typename T::rep; }) {
    return value.value;
  } else if constexpr (std::is_same_v<T, Digest>) {
    return value.Hex();
  } else if constexpr (std::is_same_v<T, End> || std::is_same_v<T, Operation>) {
    return NameOf(value);
  } else {
    return value;
  }
}

OrderedJson ValueOf(const std::vector<ClientId>& clients) {
  OrderedJson list = OrderedJson::array();
  for (const ClientId client : clients) list.push_back(client.value);
  return list;
}

OrderedJson ValueOf(const std::vector<Attempt>& attempts) {
  OrderedJson list = OrderedJson::array();
  for (const Attempt& attempt : attempts)
    list.push_back({{"client", attempt.client.value}, {"fence", FenceText(attempt.fence)}});
  return list;
}

OrderedJson ValueOf(const std::vector<Member>& cohort) {
  OrderedJson list = OrderedJson::array();
  for (const Member& member : cohort)
    list.push_back({{"client", member.client.value}, {"times", member.multiplicity}});
  return list;
}

OrderedJson ValueOf(const std::vector<GivenUp>& given_up) {
  OrderedJson list = OrderedJson::array();
  for (const GivenUp& one : given_up) {
    list.push_back({{"client", one.attempt.client.value},
                    {"fence", FenceText(one.attempt.fence)},
                    {"reason", NameOf(one.reason)},
                    {"message", one.message},
                    {"tail", one.tail}});
  }
  return list;
}

OrderedJson ValueOf(const std::vector<Holding>& holdings);

template <typename T>
void AddFields(const T& record, OrderedJson& object) {
  ForEachField(record, [&](const auto& field, const auto& value) {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, Digest>) {
      if (value.IsZero()) return;
    }
    object[field.name] = ValueOf(value);
  });
}

OrderedJson ValueOf(const std::vector<Holding>& holdings) {
  OrderedJson list = OrderedJson::array();
  for (const Holding& holding : holdings)
    AddFields(holding, list.emplace_back(OrderedJson::object()));
  return list;
}

}  // namespace

std::string JsonOf(const Entry& entry, Standing standing) {
  OrderedJson object = {{"seq", entry.sequence}, {"t", static_cast<double>(entry.ns) / 1e9}};
  std::visit(
      [&]<typename T>(const T& record) {
        if constexpr (std::is_same_v<T, Unknown>) {
          object["record"] = "unknown";
          object["kind"] = record.kind;
        } else {
          object["record"] = KindOf<T>().name;
          AddFields(record, object);
        }
      },
      entry.record);
  if (standing == Standing::kUndone) object["undone"] = true;
  // Texts come from nodes. Text that is not UTF-8 must not end the program.
  return object.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace macaw::server::log
