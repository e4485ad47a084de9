#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/builtin.h"
#include "algorithms/levels.h"
#include "algorithms/mean_delta.h"
#include "core/status.h"
#include "models/slice.h"

// HeteroFL: Diao, Ding, Tarokh, "HeteroFL: Computation and Communication Efficient Federated
// Learning for Heterogeneous Clients", ICLR 2021, algorithm 1. A client trains a narrower model of
// the same layers, and each coordinate moves by the mean over the clients that train it:
//
//   x[c] ← x[c] + Σ_{i∋c} w_i Δ_i[c] / Σ_{i∋c} w_i
//
// Σ w_i Δ_i is one channel of the whole layout, in which a client's update is zero outside of its
// slice. Slices are nested, so the divisors follow from Σ w_i by level: a few numbers. With the
// mask, a client's part of the output layer is that of its classes alone, and Σ w_i is by level and
// class.

namespace macaw::algorithms {
namespace {

constexpr char kHeld[] = "held";           // 1 for what the client holds, a buffer
constexpr char kMeanRate[] = "mean_rate";  // of the round's clients, by weight

// The classes whose output a client may not train; 0: the mask is off, or the task has no classes.
size_t MaskedClasses(const Setup& setup) {
  const bool of_classes = setup.task == TaskKind::kClassification && setup.model.classes > 0;
  return setup.Get<bool>("mask") && of_classes ? static_cast<size_t>(setup.model.classes) : 0;
}

// By level: 1 at the client's. By level and class: 1 at the client's level for its classes.
absl::StatusOr<LayoutPtr> HeldLayout(size_t levels, size_t classes) {
  const auto count = static_cast<int64_t>(levels);
  std::vector<LayoutEntry> entries = {
      {.name = "levels", .shape = {count}, .group = Group::kBuffer}};
  if (classes > 0) {
    entries.push_back({.name = "classes",
                       .shape = {count, static_cast<int64_t>(classes)},
                       .group = Group::kBuffer});
  }
  return ParameterLayout::Make(std::move(entries), DType::kF64);
}

// What both halves know.
struct Plan {
  Levels levels;
  SliceLayouts slices;
  LayoutPtr held;
  size_t classes = 0;  // MaskedClasses
  bool scaled = false;

  static absl::StatusOr<Plan> Of(const Setup& setup) {
    Plan plan;
    MACAW_ASSIGN_OR_RETURN(plan.levels, Levels::Of(setup));
    MACAW_ASSIGN_OR_RETURN(plan.slices, SliceLayouts::Of(setup, plan.levels));
    plan.classes = MaskedClasses(setup);
    MACAW_RETURN_IF_ERROR(plan.CheckClasses(*setup.layout));
    MACAW_ASSIGN_OR_RETURN(plan.held, HeldLayout(plan.levels.count(), plan.classes));
    plan.scaled = setup.Get<bool>("scaler");
    return plan;
  }

  // Each class is a row of the output layer.
  absl::Status CheckClasses(const ParameterLayout& layout) const {
    if (classes == 0) return absl::OkStatus();
    bool fits = !slices.output.empty();
    for (const size_t e : slices.output)
      fits = fits && layout.entries()[e].shape[0] == static_cast<int64_t>(classes);
    if (fits) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "mask: the model does not end in a layer with an output for each class: set mask = false");
  }
};

class HeteroFlClient final : public DeltaClient {
 public:
  HeteroFlClient(const Setup& setup, Plan plan) : DeltaClient(setup), plan_(std::move(plan)) {}

  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                              Workspace& workspace) const override {
    MACAW_RETURN_IF_ERROR(plan_.levels.Has(context.client));
    return DeltaClient::Prepare(context, workspace);
  }

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    const training::StageOutcome& outcome = outcomes[0];
    const size_t level = plan_.levels.LevelOf(context);
    return ClientResult{.up = {{"delta", UpdateOf(context, outcome, level, workspace)},
                               {kHeld, Held(outcome.classes, level, workspace)}}};
  }

 protected:
  training::Stage LocalWork(const ClientContext& context, Workspace& workspace) const override {
    training::Stage stage = DeltaClient::LocalWork(context, workspace);
    const size_t level = plan_.levels.LevelOf(context);
    stage.masks_classes = plan_.classes > 0;
    if (plan_.levels.rate(level) == 1) return stage;
    stage.width = {.rate = plan_.levels.rate(level), .scaled = plan_.scaled};
    const VectorView slice = workspace.Vector(plan_.slices.of[level]);
    models::ExtractSlice(context.model(), slice);
    stage.start = slice;
    return stage;
  }

 private:
  std::variant<ConstVectorView, Displacement> UpdateOf(const ClientContext& context,
                                                       const training::StageOutcome& outcome,
                                                       size_t level, Workspace& workspace) const {
    const std::vector<bool>& classes = outcome.classes;  // empty: all
    if (plan_.levels.rate(level) == 1 && classes.empty())
      return Update(context, outcome.end, workspace);
    const VectorView end = workspace.Vector(layout_);
    Copy(context.model(), end);
    models::InsertSlice(outcome.end, end);
    for (size_t c = 0; c < classes.size(); ++c)
      if (!classes[c]) CopyClass(c, context.model(), end);
    return Update(context, training::EndVector(end), workspace);
  }

  // The output layer's row of the class: decay has moved it, and nothing else.
  void CopyClass(size_t c, ConstVectorView from, VectorView to) const {
    DispatchDType(to.dtype(), [&]<typename T>(T) {
      for (const size_t e : plan_.slices.output) {
        const LayoutEntry& entry = to.layout->entries()[e];
        const size_t row = entry.size / static_cast<size_t>(entry.shape[0]);
        const std::span<const T> values = from.As<T>().subspan(entry.offset + c * row, row);
        std::ranges::copy(values,
                          to.As<T>().begin() + static_cast<ptrdiff_t>(entry.offset + c * row));
      }
    });
  }

  ConstVectorView Held(const std::vector<bool>& classes, size_t level, Workspace& workspace) const {
    const VectorView held = workspace.Vector(plan_.held);
    Zero(held);
    const std::span<double> numbers = held.As<double>();
    numbers[level] = 1;
    if (plan_.classes > 0) {
      const size_t first = plan_.held->entries()[1].offset + level * plan_.classes;
      for (size_t c = 0; c < plan_.classes; ++c)
        numbers[first + c] = classes.empty() || classes[c] ? 1 : 0;
    }
    return held;
  }

  const Plan plan_;
};

// How many of the first levels have the row or column, by falling sizes.
size_t HaveIt(std::span<const size_t> sizes, size_t place) {
  size_t count = 0;
  while (count < sizes.size() && place < sizes[count]) ++count;
  return count;
}

class HeteroFlServer final : public MeanDeltaServer {
 public:
  HeteroFlServer(const Setup& setup, FlatVector model, Plan plan,
                 std::optional<models::ModelSpec> evaluated)
      : MeanDeltaServer(setup, std::move(model)),
        plan_(std::move(plan)),
        bound_(setup.contribution_bound),
        slice_(std::move(evaluated)) {
    if (!slice_) return;
    part_ = FlatVector(slice_->layout);
    evaluated_ = kept_.Vector("evaluated", FlatVector(setup.layout));
    KeepEvaluated();
  }

  ConstVectorView Result() const override {
    return evaluated_ ? ConstVectorView(*evaluated_) : Model();
  }

  absl::StatusOr<AfterApply> Apply(const ServerContext& context,
                                   aggregation::Aggregate aggregate) override {
    FlatVector& delta = ChannelOf(aggregate, "delta").value;
    if (!delta.empty()) {
      const FlatVector& held = ChannelOf(aggregate, kHeld).value;
      Divide(held.view(), delta.view());
      Clamp(bound_, delta.view());  // a client that lies about its width moves no number farther
      double rate = 0;
      for (size_t level = 0; level < plan_.levels.count(); ++level)
        rate += held.As<double>()[level] * plan_.levels.rate(level);
      context.Report(kMeanRate, rate);
    }
    MACAW_ASSIGN_OR_RETURN(const AfterApply after,
                           MeanDeltaServer::Apply(context, std::move(aggregate)));
    if (evaluated_) KeepEvaluated();
    return after;
  }

 private:
  // Each coordinate of Σ_i w_i Δ_i / Σ_i w_i by Σ_{i∋c} w_i / Σ_i w_i. The latter is at most 1, and
  // 1 where all clients of the round have the coordinate: then it stays, in f32 to the bit, and in
  // f64 up to the rounding of the shares' sum.
  void Divide(ConstVectorView held, VectorView delta) const {
    const std::span<const double> numbers = held.As<double>();
    const size_t levels = plan_.levels.count();
    const std::vector<double> shares = Shares(numbers.first(levels));
    std::vector<std::vector<double>> of_class(plan_.classes);
    for (size_t c = 0; c < plan_.classes; ++c) {
      std::vector<double> own(levels);
      for (size_t level = 0; level < levels; ++level)
        own[level] = numbers[held.layout->entries()[1].offset + level * plan_.classes + c];
      of_class[c] = Shares(own);
    }
    for (size_t e = 0; e < delta.layout->entries().size(); ++e) {
      const bool by_class = plan_.classes > 0 && std::ranges::count(plan_.slices.output, e) > 0;
      const auto share_of = [&](size_t row) -> const std::vector<double>& {
        return by_class ? of_class[row] : shares;
      };
      DispatchDType(delta.dtype(), [&]<typename T>(T) { DivideEntry<T>(e, share_of, delta); });
    }
  }

  // [n]: the share of the clients of the first n levels, who have what n levels have.
  static std::vector<double> Shares(std::span<const double> by_level) {
    std::vector<double> shares = {0};
    for (const double share : by_level) shares.push_back(shares.back() + share);
    return shares;
  }

  template <typename T, typename ShareOf>
  void DivideEntry(size_t e, const ShareOf& share_of, VectorView delta) const {
    const LayoutEntry& entry = delta.layout->entries()[e];
    const auto rows = static_cast<size_t>(entry.shape[0]);
    const size_t columns = entry.size / rows;
    std::vector<size_t> rows_of, columns_of;  // by level
    for (const LayoutPtr& slice : plan_.slices.of) {
      const LayoutEntry& part = slice->entries()[e];
      rows_of.push_back(static_cast<size_t>(part.shape[0]));
      columns_of.push_back(part.size / rows_of.back());
    }
    for (size_t row = 0; row < rows; ++row) {
      const std::vector<double>& shares = share_of(row);
      const size_t have_row = HaveIt(rows_of, row);
      for (size_t column = 0; column < columns;) {
        const size_t have_both = std::min(have_row, HaveIt(columns_of, column));
        // As far as the same levels have it.
        const size_t end = have_both == 0 ? columns : std::min(columns, columns_of[have_both - 1]);
        const std::span<T> run =
            delta.As<T>().subspan(entry.offset + row * columns + column, end - column);
        DivideBy(shares[have_both], run);
        column = end;
      }
    }
  }

  template <typename T>
  static void DivideBy(double share, std::span<T> values) {
    if (share == 1) return;
    for (T& value : values) value = share > 0 ? static_cast<T>(double{value} / share) : T{0};
  }

  // An evaluation has no scaler, and a slice was trained with one: its factors are in the weights.
  void KeepEvaluated() {
    models::ExtractSlice(Model(), part_.view());
    models::FoldScales(*slice_, part_.view());
    Zero(*evaluated_);
    models::InsertSlice(part_.view(), *evaluated_);
  }

  const Plan plan_;
  const double bound_;  // of each number of an update, and so of their mean
  const std::optional<models::ModelSpec> slice_;  // that is evaluated; nothing: the whole model
  FlatVector part_;
  std::optional<VectorView> evaluated_;  // the slice, and 0 elsewhere
};

// The slice that is evaluated, with the scaler; nothing: the whole model is.
absl::StatusOr<std::optional<models::ModelSpec>> Evaluated(const Setup& setup, const Plan& plan) {
  const double rate = setup.Get<double>("evaluate");
  if (rate == 1) return std::optional<models::ModelSpec>();
  if (plan.slices.has_group_norm) {
    return absl::InvalidArgumentError(absl::StrCat(
        "evaluate = ", rate,
        ": a slice is evaluated with zeros in the place of the other channels, which groupnorm would "
        "mix in: set evaluate = 1"));
  }
  MACAW_ASSIGN_OR_RETURN(const models::ModelSpec spec,
                         models::BuildSpec(setup.model, setup.layout->dtype()));
  MACAW_ASSIGN_OR_RETURN(models::ModelSpec slice,
                         models::SliceOf(spec, {.rate = rate, .scaled = plan.scaled}));
  return std::optional<models::ModelSpec>(std::move(slice));
}

absl::StatusOr<Schema> HeteroFlSchema(const Setup& setup) {
  Schema schema = MeanDeltaSchema(setup);
  MACAW_ASSIGN_OR_RETURN(const Levels levels, Levels::Of(setup));
  MACAW_ASSIGN_OR_RETURN(LayoutPtr held, HeldLayout(levels.count(), MaskedClasses(setup)));
  schema.up.push_back(
      {.name = kHeld, .layout = std::move(held), .reduction = schema.up[0].reduction, .bound = 1});
  schema.metrics = {{kMeanRate, std::nullopt}};
  return schema;
}

absl::Status CheckHeteroFl(const Setup& setup) {
  MACAW_RETURN_IF_ERROR(NeedsPlannedCohort(setup));
  MACAW_ASSIGN_OR_RETURN(const Plan plan, Plan::Of(setup));
  MACAW_RETURN_IF_ERROR(Evaluated(setup, plan).status());
  return absl::OkStatus();
}

std::vector<std::string> NotesOnHeteroFl(const Setup& setup) {
  std::vector<std::string> notes;
  const absl::StatusOr<Levels> levels = Levels::Of(setup);
  if (levels.ok() && levels->rate(0) != 1) {
    notes.push_back(absl::StrCat("no client has rate 1: what a model of rate ", levels->rate(0),
                                 " lacks stays as it began"));
  }
  return notes;
}

}  // namespace

Description HeteroFl() {
  Description heterofl = LikeFedAvg();
  heterofl.name = "heterofl";
  heterofl.summary =
      "HeteroFL: weaker clients train narrower models, whose weights are parts of one model";
  heterofl.paper =
      "Diao et al., 2021, HeteroFL: Computation and Communication Efficient Federated Learning for "
      "Heterogeneous Clients";
  heterofl.formula =
      "client  y ← y − η·g             of the first ⌈r·n⌉ channels of each hidden layer; r: its rate\n"
      "        hidden outputs /r       while it trains (scaler)\n"
      "up      Δ = y − x, 0 elsewhere\n"
      "server  x[c] ← x[c] + η_g·mean(Δ[c])   over the clients that train c";
  heterofl.has_slices = true;
  std::vector<ParameterSpec> parameters = Levels::Parameters("heterofl");
  parameters.push_back({.name = "scaler",
                        .default_value = true,
                        .help =
                            "a client of rate r divides the outputs of hidden layers by r while it "
                            "trains, so that they are as large as the whole model's"});
  parameters.push_back(
      {.name = "mask",
       .default_value = true,
       .help = "of classes: a client trains the outputs of classes that its rows have, "
               "and counts in the mean of these alone; the others' logits are 0"});
  parameters.push_back({.name = "evaluate",
                        .default_value = 1.0,
                        .help =
                            "the rate of the model that is evaluated and written, with 0 for what "
                            "it lacks and the scaler in its weights; 1: the whole one",
                        .minimum = 0,
                        .maximum = 1,
                        .open_minimum = true});
  for (ParameterSpec& parameter : heterofl.parameters) parameters.push_back(std::move(parameter));
  heterofl.parameters = std::move(parameters);
  heterofl.remarks =
      "Convolutions, linear layers, batch and group norm, pools and layers of single numbers can be "
      "narrowed; a model with another layer is refused. A client fetches the whole model and takes its "
      "part. What it trains and sends shrinks with about the square of its rate. The mean is weighted "
      "by cohort.weight; the paper's is plain: cohort.weight = \"uniform\". Rates of 1 alone are "
      "FedAvg. Batch norm's running statistics are averaged by coordinate, as in FedAvg: the paper's "
      "static batch norm, a pass over all clients' rows before each evaluation, is left out.";
  heterofl.notes = NotesOnHeteroFl;
  heterofl.totals = [](const Setup& setup) {
    return TotalsUsed{.clients = Levels::ByNumber(setup), .weight = false};
  };
  heterofl.numbers_clients = true;
  heterofl.check = CheckHeteroFl;
  heterofl.schema = HeteroFlSchema;
  heterofl.client = [](const Setup& setup) -> absl::StatusOr<std::unique_ptr<ClientAlgorithm>> {
    MACAW_ASSIGN_OR_RETURN(Plan plan, Plan::Of(setup));
    return std::make_unique<HeteroFlClient>(setup, std::move(plan));
  };
  heterofl.server = [](const Setup& setup,
                       FlatVector model) -> absl::StatusOr<std::unique_ptr<ServerAlgorithm>> {
    MACAW_ASSIGN_OR_RETURN(Plan plan, Plan::Of(setup));
    MACAW_ASSIGN_OR_RETURN(std::optional<models::ModelSpec> evaluated, Evaluated(setup, plan));
    return std::make_unique<HeteroFlServer>(setup, std::move(model), std::move(plan),
                                            std::move(evaluated));
  };
  return heterofl;
}

}  // namespace macaw::algorithms
