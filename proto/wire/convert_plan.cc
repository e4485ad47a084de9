#include <cmath>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "proto/wire/convert.h"
#include "proto/wire/field_checks.h"

// The plan of a run. The plan itself defines its keys, types and ranges (plan/run_plan.h); this
// file knows none of them.
namespace macaw::wire {

static_assert(kMaxNameBytes == kMostSettingBytes, "a checked plan can be sent");

static v1::Value ToWire(const settings::Value& value) {
  v1::Value m;
  if (const bool* flag = value.As<bool>()) m.set_boolean(*flag);
  if (const int64_t* integer = value.As<int64_t>()) m.set_integer(*integer);
  if (const double* real = value.As<double>()) m.set_real(*real);
  if (const std::string* text = value.As<std::string>()) m.set_text(*text);
  if (const settings::Array* list = value.As<settings::Array>()) {
    v1::Values& values = *m.mutable_list();
    for (const settings::Value& item : *list) *values.add_values() = ToWire(item);
  }
  return m;
}

static absl::Status TakePlain(const v1::Value& m, settings::Value& value) {
  FieldChecks f;
  switch (m.value_case()) {
    case v1::Value::kBoolean:
      value = settings::Value{m.boolean()};
      return absl::OkStatus();
    case v1::Value::kInteger:
      value = settings::Value{int64_t{m.integer()}};
      return absl::OkStatus();
    case v1::Value::kReal:
      f.Require(!std::isnan(m.real()), "real", "is not a number");  // infinity may mean "no limit"
      value = settings::Value{m.real()};
      return f.status();
    case v1::Value::kText:
      value = settings::Value{f.Name("text", m.text())};
      return f.status();
    case v1::Value::kList:
    case v1::Value::VALUE_NOT_SET:
      break;
  }
  return Malformed("value", "absent, or of a kind this program does not know");
}

static absl::Status Take(const v1::Value& m, settings::Value& value) {
  if (m.value_case() != v1::Value::kList) return TakePlain(m, value);
  FieldChecks f;
  settings::Array values;
  f.Each("values", m.list().values(), values, TakePlain);
  value = settings::Value{std::move(values)};
  return f.status();
}

// The same error, with the key that its path does not say.
static absl::Status Naming(const std::string& key, const absl::Status& status) {
  if (status.ok()) return status;
  absl::Status named(status.code(), absl::StrCat(status.message(), " (", ShortCleanText(key), ")"));
  status.ForEachPayload(
      [&](absl::string_view type, const absl::Cord& data) { named.SetPayload(type, data); });
  return named;
}

static absl::Status Take(const v1::Setting& m, settings::Setting& setting) {
  FieldChecks f;
  setting.key = f.Name("key", m.key());
  f.Nested("value", Naming(setting.key, Take(m.value(), setting.value)));
  return f.status();
}

v1::RunPlan ToWire(const RunPlan& plan, const InlineRule& /*rule*/) {
  v1::RunPlan m;
  for (const settings::Setting& setting : SettingsOf(plan)) {
    v1::Setting& sent = *m.add_settings();
    sent.set_key(setting.key);
    *sent.mutable_value() = ToWire(setting.value);
  }
  return m;
}

absl::StatusOr<RunPlan> FromWire(const v1::RunPlan& m, InlineBytes /*inline_bytes*/) {
  FieldChecks f;
  std::vector<settings::Setting> settings;
  f.Each("settings", m.settings(), settings,
         [](const v1::Setting& sent, settings::Setting& setting) { return Take(sent, setting); });
  if (!f.status().ok()) return f.status();
  absl::StatusOr<RunPlan> plan = PlanOf(settings);
  if (plan.ok()) return plan;
  if (absl::IsUnimplemented(plan.status())) {
    return Refuse(v1::Refusal::REASON_VERSION,
                  absl::StrCat(ShortCleanText(plan.status().message()),
                               "; use the server's release here, or leave that out of the run"),
                  "run");
  }
  return Malformed("settings", ShortCleanText(plan.status().message()));
}

}  // namespace macaw::wire
