#include "engine/chat_template.h"

#include <new>

#include "engine/jinja_interpreter.h"
#include "engine/jinja_objects.h"
#include "engine/jinja_parser.h"
#include "engine/jinja_runtime.h"

namespace batchmill {

class ChatTemplate::Impl {
 public:
  Impl(std::string source, std::string bos_token, std::string eos_token, TemplateLimits limits)
      : source_(std::move(source)),
        bos_token_(std::move(bos_token)),
        eos_token_(std::move(eos_token)),
        limits_(limits),
        tree_(jinja::parse_template(source_, limits.max_depth)) {}

  const std::string& source() const { return source_; }

  MarkedText render(const jinja::Value& variables, std::int64_t now_s) const {
    jinja::Runtime runtime(limits_, now_s);
    const jinja::Value globals = with_tokens(variables);
    jinja::Interpreter interpreter(tree_, globals);
    try {
      jinja::Text out = interpreter.run();
      return {std::move(out.text), std::move(out.marked)};
    } catch (const TemplateError& error) {
      throw TemplateError(error.kind(), error.what(),
                          error.line() != 0 ? error.line() : interpreter.line());
    } catch (const std::bad_alloc&) {
      throw TemplateError("limit", "the template needs too much memory", interpreter.line());
    }
  }

 private:
  jinja::Value with_tokens(const jinja::Value& variables) const {
    using jinja::Kind;
    if (!variables.is(Kind::kDict)) {
      throw TemplateError("TypeError", "the template's variables are no dict");
    }
    const auto& given = variables.as<jinja::DictObject>();
    std::vector<std::pair<jinja::Value, jinja::Value>> items = given.items;
    const auto add = [&](const char* name, const std::string& token) {
      if (given.find(name) != nullptr) return;
      items.emplace_back(jinja::Value::string(name), jinja::Value::string(token));
    };
    add("bos_token", bos_token_);
    add("eos_token", eos_token_);
    return jinja::Value::dict_of(std::move(items));
  }

  std::string source_;
  std::string bos_token_;
  std::string eos_token_;
  TemplateLimits limits_;
  jinja::Template tree_;
};

ChatTemplate::ChatTemplate(std::string source, std::string bos_token, std::string eos_token,
                           TemplateLimits limits)
    : impl_(std::make_unique<Impl>(std::move(source), std::move(bos_token), std::move(eos_token),
                                   limits)) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

MarkedText ChatTemplate::render(const jinja::Value& variables, std::int64_t now_s) const {
  return impl_->render(variables, now_s);
}

const std::string& ChatTemplate::source() const { return impl_->source(); }

}  // namespace batchmill
