#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/wire/convert.h"
#include "proto/wire/fields.h"

// The plan of a run, and the numeric profile of a node. The plan itself defines its keys, types and
// ranges (plan/run_plan.h); this file knows none of them.
namespace macaw::wire {

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

static absl::StatusOr<settings::Value> PlainFromWire(const v1::Value& m) {
  Fields f;
  switch (m.value_case()) {
    case v1::Value::kBoolean:
      return settings::Value{m.boolean()};
    case v1::Value::kInteger:
      return settings::Value{int64_t{m.integer()}};
    case v1::Value::kReal:
      f.Require(!std::isnan(m.real()), "real", "is not a number");  // infinity may mean "no limit"
      return f.Done(settings::Value{m.real()});
    case v1::Value::kText:
      return f.Done(settings::Value{f.Name("text", m.text())});
    case v1::Value::kList:
    case v1::Value::VALUE_NOT_SET:
      break;
  }
  return Malformed("value", "absent, or of a kind this program does not know");
}

static absl::StatusOr<settings::Value> FromWire(const v1::Value& m) {
  if (m.value_case() != v1::Value::kList) return PlainFromWire(m);
  Fields f;
  settings::Array values = f.List("values", m.list().values(), PlainFromWire);
  return f.Done(settings::Value{std::move(values)});
}

static absl::StatusOr<settings::Setting> FromWire(const v1::Setting& m) {
  Fields f;
  settings::Setting setting;
  setting.key = f.Name("key", m.key());
  setting.value = f.Sub("value", FromWire(m.value()));
  return f.Done(std::move(setting));
}

v1::NumericProfile ToWire(const NumericProfile& profile) {
  v1::NumericProfile m;
  m.set_trainer(profile.trainer);
  m.set_instruction_set(profile.instruction_set);
  m.set_libraries(profile.libraries);
  return m;
}

absl::StatusOr<NumericProfile> FromWire(const v1::NumericProfile& m) {
  Fields f;
  NumericProfile profile;
  profile.trainer = f.Name("trainer", m.trainer());
  profile.instruction_set = f.Name("instruction_set", m.instruction_set());
  profile.libraries = f.Name("libraries", m.libraries());
  return f.Done(std::move(profile));
}

v1::RunPlan ToWire(const RunPlan& plan) {
  v1::RunPlan m;
  for (const settings::Setting& setting : SettingsOf(plan)) {
    v1::Setting& sent = *m.add_settings();
    sent.set_key(setting.key);
    *sent.mutable_value() = ToWire(setting.value);
  }
  return m;
}

absl::StatusOr<RunPlan> FromWire(const v1::RunPlan& m) {
  Fields f;
  const std::vector<settings::Setting> settings = f.List(
      "settings", m.settings(), [](const v1::Setting& setting) { return FromWire(setting); });
  if (!f.status().ok()) return f.status();
  absl::StatusOr<RunPlan> plan = PlanOf(settings);
  if (plan.ok()) return plan;
  if (absl::IsUnimplemented(plan.status())) {
    return Refuse(v1::Refusal::REASON_VERSION,
                  absl::StrCat(CleanText(plan.status().message()),
                               "; use the server's release here, or leave that out of the run"),
                  "run");
  }
  return Malformed("settings", CleanText(plan.status().message()));
}

}  // namespace macaw::wire
