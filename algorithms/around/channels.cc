#include "algorithms/around/channels.h"

#include <algorithm>
#include <optional>
#include <set>
#include <type_traits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "algorithms/api/vector_math.h"
#include "core/file_blocks.h"
#include "core/status.h"

namespace macaw::algorithms {
namespace {

using aggregation::ChannelSpec;
using aggregation::Reduction;

// What a message calls the things of one list.
struct Kind {
  absl::string_view gives;  // "Conclude gives the channel up"
  const Schema& schema;
};

absl::Status Wrong(const Kind& kind, absl::string_view name, absl::string_view why) {
  return absl::InternalError(
      absl::StrCat(kind.schema.whose, ": ", kind.gives, " '", name, "' ", why));
}

// Whether an item of a schema takes part in the phase.
template <typename Item>
bool TakesPart(const Item& item, Phase phase) {
  if constexpr (requires { item.phases; }) return InPhase(item.phases, phase);
  return true;
}

template <typename Items>
std::string NamesOf(const Items& items, Phase phase) {
  std::vector<std::string> names;
  for (const auto& item : items) {
    if (TakesPart(item, phase)) names.push_back(item.name);
  }
  return names.empty() ? "none" : absl::StrJoin(names, ", ");
}

const ConstVectorView& ValueOf(const NamedView& given) { return given.vector; }
const ConstVectorView& ValueOf(const DownVector& given) { return given.vector; }
const UpValue& ValueOf(const UpVector& given) { return given.value; }

// Null: it is empty.
const ParameterLayout* LayoutOf(const ConstVectorView& value) { return value.layout; }
const ParameterLayout* LayoutOf(const UpValue& value) {
  const auto* described = std::get_if<Displacement>(&value);
  return described != nullptr ? described->end.layout() : std::get<ConstVectorView>(value).layout;
}

// What is subtracted must fit, too.
const ParameterLayout* OtherLayoutOf(const ConstVectorView& value) { return value.layout; }
const ParameterLayout* OtherLayoutOf(const UpValue& value) {
  const auto* described = std::get_if<Displacement>(&value);
  return described != nullptr && !described->from.empty() ? described->from.layout
                                                          : LayoutOf(value);
}

// The values of `given` in the order of the phase's `items`, all of which must be there with their
// layouts.
template <typename Items, typename Given>
auto InOrder(const Kind& kind, const Items& items, Phase phase, const std::vector<Given>& given)
    -> absl::StatusOr<std::vector<std::decay_t<decltype(ValueOf(given[0]))>>> {
  std::vector<std::decay_t<decltype(ValueOf(given[0]))>> ordered;
  ordered.reserve(items.size());
  for (const auto& item : items) {
    if (!TakesPart(item, phase)) continue;
    const auto found = std::ranges::find(given, item.name, &Given::name);
    if (found == given.end()) {
      return Wrong(kind, item.name, absl::StrCat("not at all; it gives: ", NamesOf(given, phase)));
    }
    const auto& value = ValueOf(*found);
    if (LayoutOf(value) == nullptr) return Wrong(kind, item.name, "as an empty view");
    for (const ParameterLayout* const layout : {LayoutOf(value), OtherLayoutOf(value)}) {
      if (SameLayout(layout, item.layout.get())) continue;
      return Wrong(kind, item.name,
                   absl::StrCat("in another layout than its schema's: ", layout->size(),
                                " numbers of ", SizeOf(layout->dtype()), " bytes instead of ",
                                item.layout->size(), " of ", SizeOf(item.layout->dtype())));
    }
    ordered.push_back(value);
  }
  return ordered;
}

// Each of `views` is one of the phase's `items`, and none is there twice.
template <typename Items, typename Given>
absl::Status CheckNoneElse(const Kind& kind, const Items& items, Phase phase,
                           const std::vector<Given>& views) {
  for (const Given& view : views) {
    if (&*std::ranges::find(views, view.name, &Given::name) != &view)
      return Wrong(kind, view.name, "twice");
    const auto same = [&](const auto& item) {
      return item.name == view.name && TakesPart(item, phase);
    };
    if (std::ranges::any_of(items, same)) continue;
    return Wrong(
        kind, view.name,
        absl::StrCat("in phase ", phase.value, ", where its schema has: ", NamesOf(items, phase)));
  }
  return absl::OkStatus();
}

// What a client gives for the channels up of a phase.
absl::StatusOr<std::vector<UpValue>> VectorsUp(const Schema& schema, Phase phase,
                                               const ClientResult& result) {
  const Kind kind{"Conclude gives the channel up", schema};
  MACAW_RETURN_IF_ERROR(CheckNoneElse(kind, schema.up, phase, result.up));
  return InOrder(kind, schema.up, phase, result.up);
}

bool OfClients(const MetricSpec& metric, Phase phase) {
  return metric.reduction.has_value() && InPhase(metric.phases, phase);
}

const LayoutPtr& OneNumber() {
  static const LayoutPtr& layout =
      *new LayoutPtr(ParameterLayout::Scalars("value", 1, DType::kF64));
  return layout;
}

// A rule's own channels cannot have such a name (CheckSchema).
std::string MetricChannel(absl::string_view metric) { return absl::StrCat("metric ", metric); }

absl::StatusOr<double> MetricOf(const Schema& schema, Phase phase, const ClientResult& result,
                                const std::string& name) {
  std::optional<double> value;
  for (const auto& [given, number] : result.metrics) {
    const auto known = std::ranges::find(schema.metrics, given, &MetricSpec::name);
    if (known == schema.metrics.end() || !OfClients(*known, phase)) {
      return absl::InternalError(
          absl::StrCat(schema.whose, ": Conclude reports the metric '", given,
                       "', which is none of the clients' in phase ", phase.value,
                       "; its schema's metrics there: ", NamesOf(schema.metrics, phase)));
    }
    if (given == name) value = number;
  }
  if (value.has_value()) return *value;
  return absl::InternalError(
      absl::StrCat(schema.whose, ": Conclude does not report the metric '", name, "'"));
}

template <typename Items>
absl::Status CheckNames(absl::string_view what, const Items& items) {
  std::set<std::string> names;
  for (const auto& item : items) {
    if (item.name.empty() || absl::StrContains(item.name, " "))
      return absl::InternalError(
          absl::StrCat("its schema names ", what, " '", item.name, "': use a word"));
    if (!names.insert(item.name).second)
      return absl::InternalError(absl::StrCat("its schema has ", what, " '", item.name, "' twice"));
  }
  return absl::OkStatus();
}

template <typename Items>
absl::Status CheckLayouts(absl::string_view what, const Items& items) {
  for (const auto& item : items) {
    if (item.layout == nullptr)
      return absl::InternalError(
          absl::StrCat("its schema has no layout for ", what, " '", item.name, "'"));
  }
  return absl::OkStatus();
}

// Whether one of the values is of this end, and no more.
bool IsInOneValue(const training::EndVector& end, std::span<const UpValue> values) {
  return std::ranges::count_if(values, [&](const UpValue& value) {
           const auto* described = std::get_if<Displacement>(&value);
           return (described != nullptr
                       ? described->end.place()
                       : std::get<ConstVectorView>(value).bytes.data()) == end.place();
         }) == 1;
}

// out = end − from, or the end where nothing is subtracted; piece by piece, so that the end's space
// becomes that of `out`.
void Displace(ConstVectorView end, ConstVectorView from, VectorView out, Ends ends) {
  constexpr size_t kPiece = size_t{16} << 20;  // bytes
  for (size_t at = 0; at < out.bytes.size(); at += kPiece) {
    const size_t count = std::min(kPiece, out.bytes.size() - at);
    const ConstVectorView some{end.layout, end.bytes.subspan(at, count)};
    const VectorView to{out.layout, out.bytes.subspan(at, count)};
    TakeSpace(to.bytes);
    if (from.empty()) {
      Overwrite(to.bytes.data(), some.bytes);
    } else {
      const ConstVectorView minus{from.layout, from.bytes.subspan(at, count)};
      OverwriteWith(to.bytes, [&](size_t begin, std::span<std::byte> piece) {
        const auto of = [&](ConstVectorView all) {
          return ConstVectorView{all.layout, all.bytes.subspan(begin, piece.size())};
        };
        Subtract(of(some), of(minus), VectorView{to.layout, piece});
      });
      LeaveToCache(minus.bytes);
    }
    if (ends == Ends::kMayGo) GiveUpSpace(some.bytes);
  }
}

}  // namespace

LayoutPtr InDouble(const LayoutPtr& layout) {
  if (layout->dtype() == DType::kF64) return layout;
  return ParameterLayout::Make(layout->entries(), DType::kF64).value_or(nullptr);
}

bool InPhase(const std::vector<Phase>& phases, Phase phase) {
  return phases.empty() || std::ranges::find(phases, phase) != phases.end();
}

std::vector<LayoutPtr> DownLayouts(const Schema& schema, Phase phase) {
  std::vector<LayoutPtr> layouts;
  for (const DownChannel& channel : schema.down) {
    if (InPhase(channel.phases, phase)) layouts.push_back(channel.layout);
  }
  return layouts;
}

const LayoutPtr& SentModelLayout(const Schema& schema) {
  return schema.parts != nullptr ? schema.parts->trained.layout() : schema.down[0].layout;
}

absl::StatusOr<std::vector<ConstVectorView>> DownViews(const Schema& schema, Phase phase,
                                                       const Broadcast& broadcast) {
  const Kind kind{"Configure gives the channel down", schema};
  for (const DownVector& view : broadcast) {  // those of other phases stay at home
    if (std::ranges::find(schema.down, view.name, &DownChannel::name) != schema.down.end())
      continue;
    return Wrong(kind, view.name, "which its schema does not have");
  }
  if (schema.parts == nullptr) return InOrder(kind, schema.down, phase, broadcast);
  std::vector<DownChannel> sent = schema.down;
  sent[0].layout = SentModelLayout(schema);
  return InOrder(kind, sent, phase, broadcast);
}

std::vector<ConstVectorView> ParallelToDown(const Schema& schema, Phase phase,
                                            std::span<const ConstVectorView> sent) {
  std::vector<ConstVectorView> views(schema.down.size());
  for (size_t i = 0, next = 0; i < views.size(); ++i) {
    if (InPhase(schema.down[i].phases, phase)) views[i] = sent[next++];
  }
  return views;
}

std::vector<ChannelSpec> UpChannels(const Schema& schema, Phase phase) {
  std::vector<ChannelSpec> channels;
  for (const ChannelSpec& channel : schema.up) {
    if (InPhase(channel.phases, phase)) channels.push_back(channel);
  }
  for (const MetricSpec& metric : schema.metrics) {
    if (!OfClients(metric, phase)) continue;
    channels.push_back({.name = MetricChannel(metric.name),
                        .layout = OneNumber(),
                        .reduction = *metric.reduction,
                        .bound = metric.bound});
  }
  return channels;
}

absl::Status CheckUp(const Schema& schema, Phase phase, const ClientResult& result) {
  return VectorsUp(schema, phase, result).status();
}

absl::StatusOr<std::vector<UpValue>> UpValues(const Schema& schema, Phase phase,
                                              const ClientResult& result, Workspace& workspace) {
  MACAW_ASSIGN_OR_RETURN(std::vector<UpValue> values, VectorsUp(schema, phase, result));
  for (const MetricSpec& metric : schema.metrics) {
    if (!OfClients(metric, phase)) continue;
    MACAW_ASSIGN_OR_RETURN(const double value, MetricOf(schema, phase, result, metric.name));
    const VectorView number = workspace.Vector(OneNumber());
    Zero(number);
    number.As<double>()[0] = value;
    values.emplace_back(number);
  }
  return values;
}

absl::StatusOr<std::vector<ConstVectorView>> OnHost(std::span<const ChannelSpec> channels,
                                                    std::span<const UpValue> values,
                                                    Workspace& workspace, Ends ends) {
  std::vector<ConstVectorView> views;
  views.reserve(values.size());
  for (size_t c = 0; c < values.size(); ++c) {
    const auto* described = std::get_if<Displacement>(&values[c]);
    if (described == nullptr) {
      views.push_back(std::get<ConstVectorView>(values[c]));
      continue;
    }
    MACAW_RETURN_IF_ERROR(described->end.Fetch());
    if (described->from.empty() && described->factor == 1) {
      views.push_back(described->end);
      continue;
    }
    const VectorView vector = workspace.InPieces(channels[c].layout);
    const bool goes = ends == Ends::kMayGo && IsInOneValue(described->end, values) &&
                      TakesSpaceFirst(described->end.view().bytes.data());
    Displace(described->end, described->from, vector, goes ? Ends::kMayGo : Ends::kStay);
    if (described->factor != 1) ScaleParameters(described->factor, vector);
    views.push_back(vector);
  }
  return views;
}

absl::StatusOr<std::vector<ConstVectorView>> UpViews(const Schema& schema, Phase phase,
                                                     const ClientResult& result,
                                                     Workspace& workspace, Ends ends) {
  MACAW_ASSIGN_OR_RETURN(const std::vector<UpValue> values,
                         UpValues(schema, phase, result, workspace));
  return OnHost(UpChannels(schema, phase), values, workspace, ends);
}

absl::StatusOr<std::vector<ConstVectorView>> StateViews(const Schema& schema,
                                                        std::span<const ConstVectorView> before,
                                                        const ClientResult& result) {
  if (result.state.empty()) return std::vector<ConstVectorView>();
  const Kind kind{"Conclude gives the state", schema};
  MACAW_RETURN_IF_ERROR(CheckNoneElse(kind, schema.state, Phase(0), result.state));
  std::vector<NamedView> whole = result.state;
  for (size_t i = 0; i < schema.state.size(); ++i) {
    const std::string& name = schema.state[i].name;
    if (!std::ranges::count(result.state, name, &NamedView::name))
      whole.push_back({name, before[i]});
  }
  return InOrder(kind, schema.state, Phase(0), whole);
}

std::vector<std::pair<std::string, double>> TakeMetrics(const Schema& schema, Phase phase,
                                                        aggregation::Aggregate& aggregate) {
  std::vector<std::pair<std::string, double>> metrics;
  const auto first = static_cast<size_t>(std::ranges::count_if(
      schema.up, [&](const ChannelSpec& channel) { return InPhase(channel.phases, phase); }));
  size_t channel = first;
  for (const MetricSpec& metric : schema.metrics) {
    if (!OfClients(metric, phase)) continue;
    const FlatVector& value = aggregate.channels[channel++].value;
    if (!value.empty()) metrics.emplace_back(metric.name, value.As<double>()[0]);
  }
  aggregate.channels.resize(first);
  return metrics;
}

absl::Status CheckNextPhase(const Schema& schema, Phase phase) {
  if (phase.value + 1U < kMostPhases) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      schema.whose, ": Apply asks for another phase of a round that has had ", kMostPhases,
      ", which is the most: end the round (a rule in Python: return None instead of "
      "\"next_phase\")"));
}

absl::Status CheckSaved(const Schema& schema, const ServerState& saved,
                        const std::vector<LayoutPtr>& layouts) {
  for (const auto& [name, vector] : saved.vectors) {
    const auto is_its = [its = vector.layout().get()](const LayoutPtr& layout) {
      return SameLayout(layout.get(), its);
    };
    if (std::ranges::any_of(layouts, is_its)) continue;
    return absl::InternalError(
        absl::StrCat(schema.whose, ": the server half saves the vector '", name,
                     "', whose layout is that of no channel, so no resume could read it: add it "
                     "to Schema::saved"));
  }
  return absl::OkStatus();
}

absl::Status CheckSchema(const Schema& schema, const LayoutPtr& model) {
  MACAW_RETURN_IF_ERROR(CheckNames("the channel down", schema.down));
  MACAW_RETURN_IF_ERROR(CheckNames("the channel up", schema.up));
  MACAW_RETURN_IF_ERROR(CheckNames("the state", schema.state));
  MACAW_RETURN_IF_ERROR(CheckNames("the metric", schema.metrics));
  MACAW_RETURN_IF_ERROR(CheckLayouts("the channel down", schema.down));
  MACAW_RETURN_IF_ERROR(CheckLayouts("the channel up", schema.up));
  MACAW_RETURN_IF_ERROR(CheckLayouts("the state", schema.state));
  if (schema.down.empty() || !SameLayout(schema.down[0].layout.get(), model.get()) ||
      !schema.down[0].phases.empty()) {
    return absl::InternalError(
        "the first channel down of its schema must be the model, in every phase");
  }
  for (const MetricSpec& metric : schema.metrics) {
    const auto fits = [](char c) {
      return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_';
    };
    if (!std::ranges::all_of(metric.name, fits) || metric.reduction == Reduction::kCollect) {
      return absl::InternalError(absl::StrCat("its schema's metric '", metric.name,
                                              "' needs a name of small letters, digits and _, and "
                                              "another reduction than kCollect"));
    }
  }
  return absl::OkStatus();
}

}  // namespace macaw::algorithms
