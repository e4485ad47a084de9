#pragma once

#include <tuple>
#include <type_traits>

#include "server/log/record.h"

// The one list of the fields of each record, with their numbers in the file and their names in
// JSON. The codec and the JSON printer visit this list. A number is never reused. A new field or
// kind takes a new number; readers that do not know the number skip it.
namespace macaw::server::log {

template <typename T, typename Member>
struct Field {
  uint32_t number;
  const char* name;
  Member T::*member;
};
template <typename T, typename Member>
Field(uint32_t, const char*, Member T::*) -> Field<T, Member>;

// A kind of record: the field number of its payload in the entry, and the kind's name.
template <typename T>
struct Kind {
  using Type = T;
  uint32_t number;
  const char* name;
};
inline constexpr uint32_t kTimeField = 1;  // of an entry; its other field is that of its kind
inline constexpr std::tuple kKinds{Kind<RunOpened>{2, "run_opened"},
                                   Kind<NodeJoined>{3, "node_joined"},
                                   Kind<NodeRefused>{4, "node_refused"},
                                   Kind<NodeLost>{5, "node_lost"},
                                   Kind<Died>{6, "died"},
                                   Kind<RoundOpened>{7, "round_opened"},
                                   Kind<Planned>{8, "planned"},
                                   Kind<Leased>{9, "leased"},
                                   Kind<Accepted>{10, "accepted"},
                                   Kind<TurnedDown>{11, "turned_down"},
                                   Kind<Requeued>{12, "requeued"},
                                   Kind<RoundLost>{13, "round_lost"},
                                   Kind<Closed>{14, "closed"},
                                   Kind<Evaluated>{15, "evaluated"},
                                   Kind<RunEnded>{16, "run_ended"},
                                   Kind<GaveUp>{17, "gave_up"},
                                   Kind<Extended>{18, "extended"},
                                   Kind<Waiting>{19, "waiting"},
                                   Kind<Operated>{20, "operated"},
                                   Kind<NodeDeclined>{21, "node_declined"},
                                   Kind<EvaluationGaveUp>{25, "evaluation_gave_up"},
                                   Kind<StatesLost>{26, "states_lost"}};
static_assert(std::tuple_size_v<decltype(kKinds)> + 1 == std::variant_size_v<Record>,
              "every kind but Unknown has its number");

template <typename T>
constexpr Kind<T> KindOf() {
  return std::get<Kind<T>>(kKinds);
}

constexpr auto FieldsOf(std::type_identity<Holding>) {
  return std::tuple(Field{1, "data", &Holding::data}, Field{2, "clients", &Holding::clients});
}
constexpr auto FieldsOf(std::type_identity<RunOpened>) {
  return std::tuple(
      Field{1, "run", &RunOpened::run}, Field{2, "epoch", &RunOpened::epoch},
      Field{3, "configuration", &RunOpened::configuration},
      Field{4, "completed", &RunOpened::completed}, Field{5, "wall_ns", &RunOpened::wall_ns},
      Field{6, "replays", &RunOpened::replays}, Field{7, "reset_states", &RunOpened::reset_states},
      Field{8, "goes_on", &RunOpened::goes_on}, Field{9, "keeps_places", &RunOpened::keeps_places});
}
constexpr auto FieldsOf(std::type_identity<NodeJoined>) {
  return std::tuple(
      Field{1, "node", &NodeJoined::node}, Field{2, "name", &NodeJoined::name},
      Field{3, "slots", &NodeJoined::slots}, Field{4, "incarnation", &NodeJoined::incarnation},
      Field{5, "profile", &NodeJoined::profile}, Field{6, "holdings", &NodeJoined::holdings});
}
constexpr auto FieldsOf(std::type_identity<NodeRefused>) {
  return std::tuple(Field{1, "name", &NodeRefused::name}, Field{2, "why", &NodeRefused::why});
}
constexpr auto FieldsOf(std::type_identity<NodeLost>) {
  return std::tuple(Field{1, "node", &NodeLost::node}, Field{2, "name", &NodeLost::name},
                    Field{3, "why", &NodeLost::why});
}
constexpr auto FieldsOf(std::type_identity<NodeDeclined>) {
  return std::tuple(Field{1, "node", &NodeDeclined::node}, Field{2, "name", &NodeDeclined::name},
                    Field{3, "why", &NodeDeclined::why});
}
constexpr auto FieldsOf(std::type_identity<Died>) {
  return std::tuple(Field{1, "round", &Died::round}, Field{2, "client", &Died::client},
                    Field{3, "deaths", &Died::deaths});
}
constexpr auto FieldsOf(std::type_identity<RoundOpened>) {
  return std::tuple(
      Field{1, "round", &RoundOpened::round}, Field{2, "phase", &RoundOpened::phase},
      Field{3, "eligible", &RoundOpened::eligible}, Field{4, "cohort", &RoundOpened::cohort},
      Field{5, "max_weight", &RoundOpened::max_weight},
      Field{6, "total_weight", &RoundOpened::total_weight},
      Field{7, "max_multiplicity", &RoundOpened::max_multiplicity},
      Field{8, "total_multiplicity", &RoundOpened::total_multiplicity},
      Field{9, "broadcast", &RoundOpened::broadcast},
      Field{10, "broadcast_bytes", &RoundOpened::broadcast_bytes},
      Field{11, "present", &RoundOpened::present}, Field{12, "arrivals", &RoundOpened::arrivals});
}
constexpr auto FieldsOf(std::type_identity<Waiting>) {
  return std::tuple(Field{1, "round", &Waiting::round}, Field{2, "present", &Waiting::present},
                    Field{3, "needed", &Waiting::needed});
}
constexpr auto FieldsOf(std::type_identity<Planned>) {
  return std::tuple(Field{1, "round", &Planned::round}, Field{2, "phase", &Planned::phase},
                    Field{3, "why", &Planned::why});
}
constexpr auto FieldsOf(std::type_identity<Leased>) {
  return std::tuple(Field{1, "round", &Leased::round}, Field{2, "phase", &Leased::phase},
                    Field{3, "node", &Leased::node}, Field{4, "attempts", &Leased::attempts},
                    Field{5, "staleness", &Leased::staleness});
}
constexpr auto FieldsOf(std::type_identity<Accepted>) {
  return std::tuple(
      Field{1, "round", &Accepted::round}, Field{2, "phase", &Accepted::phase},
      Field{3, "node", &Accepted::node}, Field{4, "commit", &Accepted::commit},
      Field{5, "included", &Accepted::included}, Field{6, "given_up", &Accepted::given_up},
      Field{7, "sums", &Accepted::sums}, Field{8, "seconds", &Accepted::seconds},
      Field{9, "sums_bytes", &Accepted::sums_bytes}, Field{10, "staleness", &Accepted::staleness});
}
constexpr auto FieldsOf(std::type_identity<TurnedDown>) {
  return std::tuple(Field{1, "round", &TurnedDown::round}, Field{2, "phase", &TurnedDown::phase},
                    Field{3, "node", &TurnedDown::node}, Field{4, "commit", &TurnedDown::commit},
                    Field{5, "stale", &TurnedDown::stale}, Field{6, "why", &TurnedDown::why});
}
constexpr auto FieldsOf(std::type_identity<Requeued>) {
  return std::tuple(Field{1, "round", &Requeued::round}, Field{2, "phase", &Requeued::phase},
                    Field{3, "attempts", &Requeued::attempts}, Field{4, "why", &Requeued::why});
}
constexpr auto FieldsOf(std::type_identity<GaveUp>) {
  return std::tuple(Field{1, "round", &GaveUp::round}, Field{2, "phase", &GaveUp::phase},
                    Field{3, "given_up", &GaveUp::given_up});
}
constexpr auto FieldsOf(std::type_identity<Extended>) {
  return std::tuple(Field{1, "round", &Extended::round}, Field{2, "phase", &Extended::phase},
                    Field{3, "counted", &Extended::counted},
                    Field{4, "missing", &Extended::missing}, Field{5, "needed", &Extended::needed});
}
constexpr auto FieldsOf(std::type_identity<RoundLost>) {
  return std::tuple(Field{1, "round", &RoundLost::round}, Field{2, "phase", &RoundLost::phase},
                    Field{3, "why", &RoundLost::why}, Field{4, "dropped", &RoundLost::dropped},
                    Field{5, "alone", &RoundLost::alone});
}
constexpr auto FieldsOf(std::type_identity<Closed>) {
  return std::tuple(Field{1, "round", &Closed::round}, Field{2, "phase", &Closed::phase},
                    Field{3, "last", &Closed::last}, Field{4, "counted", &Closed::counted},
                    Field{5, "left_out", &Closed::left_out},
                    Field{6, "requeued", &Closed::requeued}, Field{7, "seconds", &Closed::seconds},
                    Field{8, "model", &Closed::model});
}
constexpr auto FieldsOf(std::type_identity<Evaluated>) {
  return std::tuple(Field{1, "round", &Evaluated::round}, Field{2, "stop", &Evaluated::stop});
}
constexpr auto FieldsOf(std::type_identity<EvaluationGaveUp>) {
  return std::tuple(
      Field{1, "round", &EvaluationGaveUp::round}, Field{2, "states", &EvaluationGaveUp::states},
      Field{3, "tasks", &EvaluationGaveUp::tasks},
      Field{4, "given_up", &EvaluationGaveUp::given_up}, Field{5, "why", &EvaluationGaveUp::why});
}
constexpr auto FieldsOf(std::type_identity<StatesLost>) {
  return std::tuple(Field{1, "round", &StatesLost::round}, Field{2, "phase", &StatesLost::phase},
                    Field{3, "name", &StatesLost::name}, Field{4, "clients", &StatesLost::clients},
                    Field{5, "counted", &StatesLost::counted}, Field{6, "why", &StatesLost::why},
                    Field{7, "all", &StatesLost::all});
}
constexpr auto FieldsOf(std::type_identity<RunEnded>) {
  return std::tuple(Field{1, "how", &RunEnded::how}, Field{2, "rounds", &RunEnded::rounds},
                    Field{3, "why", &RunEnded::why}, Field{4, "model", &RunEnded::model},
                    Field{5, "states", &RunEnded::states});
}

constexpr auto FieldsOf(std::type_identity<Operated>) {
  return std::tuple(Field{1, "action", &Operated::action}, Field{2, "by", &Operated::by},
                    Field{3, "name", &Operated::name}, Field{4, "round", &Operated::round},
                    Field{5, "why", &Operated::why});
}

// visit(field, value) for each field of `record`.
template <typename T, typename Visitor>
void ForEachField(T& record, Visitor&& visit) {
  std::apply([&](const auto&... field) { (visit(field, record.*field.member), ...); },
             FieldsOf(std::type_identity<std::remove_const_t<T>>{}));
}

}  // namespace macaw::server::log
