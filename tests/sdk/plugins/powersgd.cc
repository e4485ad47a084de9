// PowerSGD: Vogels, Karimireddy, Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for
// Distributed Optimization", NeurIPS 2019, algorithms 1 and 2, on clients' updates. Each tensor of
// two or more dimensions is a matrix M of n × m numbers, of which rank·(n + m) travel: in phase 0
// P = M·Q, in phase 1 Q = Mᵀ·P̂. What M lacks of P̂·Qᵀ the client keeps. Other tensors travel
// whole.
#include <cmath>
#include <string>
#include <vector>

#include "algorithms/api/vector_math.h"
#include "algorithms/mean_delta.h"
#include "core/status.h"
#include "sdk/plugin.h"

namespace {

using namespace macaw;
using namespace macaw::algorithms;

constexpr Phase kP{0}, kQ{1};

// The matrices of a model and the layouts of their factors.
class Factors {
 public:
  explicit Factors(const Setup& setup)
      : model_(setup.layout), rank_(static_cast<uint64_t>(setup.Get<int64_t>("rank"))) {
    std::vector<LayoutEntry> p, q, whole;
    const auto rank = static_cast<int64_t>(rank_);
    for (const LayoutEntry& entry : model_->entries()) {
      const bool matrix = entry.shape.size() > 1;
      const int64_t n = matrix ? entry.shape[0] : 0;
      is_matrix_.push_back(matrix);
      if (!matrix) whole.push_back({.name = entry.name, .shape = entry.shape});
      if (matrix) p.push_back({.name = entry.name, .shape = {n, rank}});
      if (matrix)
        q.push_back({.name = entry.name, .shape = {static_cast<int64_t>(entry.size) / n, rank}});
    }
    p_ = *ParameterLayout::Make(std::move(p), model_->dtype());
    q_ = *ParameterLayout::Make(std::move(q), model_->dtype());
    whole_ = *ParameterLayout::Make(std::move(whole), model_->dtype());
  }
  const LayoutPtr& p() const { return p_; }
  const LayoutPtr& q() const { return q_; }
  const LayoutPtr& whole() const { return whole_; }

  // f(n, m, matrix, its rows of P, its rows of Q), all row by row.
  template <typename F>
  void ForEach(VectorView model, VectorView p, VectorView q, F&& f) const {
    DispatchDType(model_->dtype(), [&]<typename T>(T) {
      for (size_t i = 0, k = 0; i < is_matrix_.size(); ++i) {
        if (!is_matrix_[i]) continue;
        const LayoutEntry &of = model_->entries()[i], &left = p_->entries()[k],
                          &right = q_->entries()[k++];
        f(left.size / rank_, right.size / rank_, model.As<T>().data() + of.offset,
          p.As<T>().data() + left.offset, q.As<T>().data() + right.offset);
      }
    });
  }
  // The tensors that are no matrices, out of the model's vector or added to it.
  template <typename F>
  void Whole(VectorView model, VectorView whole, F&& f) const {
    DispatchDType(model_->dtype(), [&]<typename T>(T) {
      for (size_t i = 0, k = 0; i < is_matrix_.size(); ++i) {
        if (is_matrix_[i]) continue;
        const LayoutEntry &of = model_->entries()[i], &to = whole_->entries()[k++];
        for (uint64_t j = 0; j < of.size; ++j)
          f(model.As<T>()[of.offset + j], whole.As<T>()[to.offset + j]);
      }
    });
  }
  // P = M·Q
  void Left(VectorView m, VectorView p, VectorView q) const {
    ForEach(m, p, q, [r = rank_](uint64_t rows, uint64_t columns, auto* m, auto* p, auto* q) {
      for (uint64_t i = 0; i < rows; ++i) {
        for (uint64_t c = 0; c < r; ++c) {
          double sum = 0;
          for (uint64_t j = 0; j < columns; ++j) sum += double{m[i * columns + j]} * q[j * r + c];
          p[i * r + c] = static_cast<std::remove_reference_t<decltype(*p)>>(sum);
        }
      }
    });
  }
  // Q = Mᵀ·P
  void Right(VectorView m, VectorView p, VectorView q) const {
    ForEach(m, p, q, [r = rank_](uint64_t rows, uint64_t columns, auto* m, auto* p, auto* q) {
      for (uint64_t j = 0; j < columns; ++j) {
        for (uint64_t c = 0; c < r; ++c) {
          double sum = 0;
          for (uint64_t i = 0; i < rows; ++i) sum += double{m[i * columns + j]} * p[i * r + c];
          q[j * r + c] = static_cast<std::remove_reference_t<decltype(*q)>>(sum);
        }
      }
    });
  }
  // M += factor·P·Qᵀ
  void AddProduct(double factor, VectorView p, VectorView q, VectorView m) const {
    ForEach(m, p, q,
            [r = rank_, factor](uint64_t rows, uint64_t columns, auto* m, auto* p, auto* q) {
              for (uint64_t i = 0; i < rows; ++i) {
                for (uint64_t j = 0; j < columns; ++j) {
                  double sum = 0;
                  for (uint64_t c = 0; c < r; ++c) sum += double{p[i * r + c]} * q[j * r + c];
                  m[i * columns + j] +=
                      static_cast<std::remove_reference_t<decltype(*m)>>(factor * sum);
                }
              }
            });
  }
  // Gram-Schmidt on the columns; a column that the others span becomes zero.
  void Orthogonalize(VectorView m, VectorView p, VectorView q) const {
    ForEach(m, p, q, [r = rank_](uint64_t rows, uint64_t, auto*, auto* p, auto*) {
      const auto dot = [&](uint64_t a, uint64_t b) {
        double sum = 0;
        for (uint64_t i = 0; i < rows; ++i) sum += double{p[i * r + a]} * p[i * r + b];
        return sum;
      };
      const auto change = [&](uint64_t column, auto f) {
        for (uint64_t i = 0; i < rows; ++i) {
          auto& x = p[i * r + column];
          x = static_cast<std::remove_reference_t<decltype(x)>>(f(i, double{x}));
        }
      };
      for (uint64_t c = 0; c < r; ++c) {
        const double before = std::sqrt(dot(c, c));
        for (uint64_t b = 0; b < c; ++b) {
          const double along = dot(b, c);
          change(c, [&](uint64_t i, double x) { return x - along * p[i * r + b]; });
        }
        const double norm = std::sqrt(dot(c, c));
        const double scale = norm > 1e-6 * before ? 1 / norm : 0;
        change(c, [&](uint64_t, double x) { return x * scale; });
      }
    });
  }

 private:
  const LayoutPtr model_;
  const uint64_t rank_;
  std::vector<bool> is_matrix_;
  LayoutPtr p_, q_, whole_;
};

class Client final : public DeltaClient {
 public:
  explicit Client(const Setup& setup) : DeltaClient(setup), factors_(setup) {}

  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                              Workspace& workspace) const override {
    if (context.phase == kQ) return training::LocalPlan();
    return DeltaClient::Prepare(context, workspace);
  }

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    const VectorView m = workspace.Vector(layout_), p = workspace.Vector(factors_.p()),
                     q = workspace.Vector(factors_.q());
    Copy(context.State("memory"), m);
    Zero(p);
    Zero(q);
    if (context.phase == kP) {
      Add(Delta(context, outcomes[0].end, workspace), m);  // M = Δ_i + e_i
      Copy(context.Down("q"), q);
      factors_.Left(m, p, q);
      return ClientResult{.up = {{"p", p}}, .state = {{"memory", m}}};
    }
    Copy(context.Down("p"), p);
    factors_.Right(m, p, q);
    factors_.AddProduct(-1, p, q, m);  // e_i = M − P̂·Qᵀ
    const VectorView whole = workspace.Vector(factors_.whole());
    Zero(whole);
    factors_.Whole(m, whole, [](auto& of, auto& to) {
      to = of;
      of = 0;
    });
    return ClientResult{.up = {{"q", q}, {"whole", whole}}, .state = {{"memory", m}}};
  }

 private:
  const Factors factors_;
};

class Server final : public MeanDeltaServer {
 public:
  Server(const Setup& setup, FlatVector model)
      : MeanDeltaServer(setup, std::move(model)),
        factors_(setup),
        p_(factors_.p()),
        q_(kept_.Vector("q", FlatVector(factors_.q()))),
        update_(setup.layout) {
    RandomStream random = ServerContext{.seed = setup.seed}.Random("q");
    DispatchDType(setup.layout->dtype(), [&]<typename T>(T) {
      for (const LayoutEntry& entry : factors_.q()->entries()) {
        for (T& x : q_.As<T>().subspan(entry.offset, entry.size))
          x = static_cast<T>(random.Normal());
      }
    });
  }

  absl::StatusOr<Broadcast> Configure(const ServerContext&) const override {
    return Broadcast{{"model", Model()}, {"q", q_}, {"p", p_.view()}};
  }

  absl::StatusOr<AfterApply> Apply(const ServerContext& context,
                                   aggregation::Aggregate aggregate) override {
    if (context.phase == kP) {
      aggregation::AggregatedChannel& p = ChannelOf(aggregate, "p");
      if (p.value.empty()) return AfterApply::kRoundDone;
      p_ = std::move(p.value);
      factors_.Orthogonalize(update_.view(), p_.view(), q_);
      return AfterApply::kNextPhase;
    }
    FlatVector &q = ChannelOf(aggregate, "q").value, &whole = ChannelOf(aggregate, "whole").value;
    if (q.empty()) return AfterApply::kRoundDone;
    Copy(q.view(), q_);
    Zero(update_.view());
    factors_.AddProduct(1, p_.view(), q_, update_.view());
    factors_.Whole(update_.view(), whole.view(), [](auto& of, auto& from) { of = from; });
    MACAW_RETURN_IF_ERROR(Move(context.round, update_));
    return AfterApply::kRoundDone;
  }

 private:
  const Factors factors_;
  FlatVector p_;  // P̂: used within a round, so it is not saved
  VectorView q_;
  FlatVector update_;
};

absl::StatusOr<Schema> PowerSgdSchema(const Setup& setup) {
  const Factors factors(setup);
  Schema schema = MeanDeltaSchema(setup);
  const auto channel = [&](std::string name, LayoutPtr layout, Phase phase) {
    aggregation::ChannelSpec spec = MeanDeltaSchema(setup).up[0];
    spec.name = std::move(name);
    spec.layout = std::move(layout);
    spec.phases = {phase};
    return spec;
  };
  schema.down.push_back({"q", factors.q(), {kP}});
  schema.down.push_back({"p", factors.p(), {kQ}});
  schema.up = {channel("p", factors.p(), kP), channel("q", factors.q(), kQ),
               channel("whole", factors.whole(), kQ)};
  schema.state = {{"memory", setup.layout}};
  return schema;
}

absl::Status CheckPowerSgd(const Setup& setup) {
  const Factors factors(setup);
  if (!factors.p()->entries().empty() && !factors.whole()->entries().empty())
    return NeedsPlannedCohort(setup);
  return absl::InvalidArgumentError("the model needs matrices, and biases or other vectors");
}

absl::Status Contribute(sdk::Catalogue& catalogue) {
  Description rule = {
      .name = "powersgd",
      .summary = "clients send factors of low rank of their updates, in two phases",
      .paper = "Vogels et al., 2019, PowerSGD: Practical Low-Rank Gradient Compression",
      .parameters = ServerRateParameters(),
      .check = CheckPowerSgd,
      .schema = PowerSgdSchema,
      .server = MakeServer<Server>,
      .client = MakeClient<Client>,
  };
  rule.parameters.push_back({.name = "rank",
                             .default_value = int64_t{2},
                             .help = "rank of each matrix's update",
                             .minimum = 1});
  return catalogue.AddAlgorithm(std::move(rule));
}

}  // namespace

MACAW_PLUGIN("powersgd", "1", Contribute)
