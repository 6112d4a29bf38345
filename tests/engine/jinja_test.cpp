// The interpreter on small templates: language, whitespace, errors and their lines.
#include <gtest/gtest.h>

#include "engine/chat_template.h"
#include "tests/support/json_to_jinja.h"

namespace batchmill {
namespace {

using Json = nlohmann::ordered_json;

std::string render(const std::string& source, const Json& variables = Json::object()) {
  return ChatTemplate(source, "<s>", "</s>").render(testing::to_jinja(variables), 0).text;
}

// "kind:line" of the error that a template ends with.
std::string failure(const std::string& source, const Json& variables = Json::object()) {
  try {
    return "rendered " + render(source, variables);
  } catch (const TemplateError& error) {
    return error.kind() + ":" + std::to_string(error.line());
  }
}

TEST(JinjaTest, TrimsWhiteSpaceAroundTags) {
  EXPECT_EQ(render("  {% if true %}\n  x\n  {% endif %}\ny\n"), "  x\ny");
  EXPECT_EQ(render("a {%- if true -%} b {%- endif %} c"), "ab c");
  EXPECT_EQ(render("  {%+ if true %}x{% endif %}"), "  x");
  EXPECT_EQ(render("a\r\n{# c #}\r\nb\n"), "a\nb");
  EXPECT_EQ(render("{% raw %}{{ x }}{% endraw %}"), "{{ x }}");
}

TEST(JinjaTest, PrintsValuesLikePython) {
  EXPECT_EQ(render("{{ 1e16 }} {{ 1e-5 }} {{ 4/2 }} {{ 2**100 }} {{ 7//-2 }} {{ -7 % 3 }}"),
            "1e+16 1e-05 2.0 1267650600228229401496703205376 -4 2");
  EXPECT_EQ(render("{{ [1, 'a', none, true, 1.5, ('x',), {'k': \"it's\"}] }}"),
            "[1, 'a', None, True, 1.5, ('x',), {'k': \"it's\"}]");
  EXPECT_EQ(render("{{ 'é\\n\\u200b' ~ ['\\u200b\\n'] }}"), "é\n\u200b['\\u200b\\n']");
}

TEST(JinjaTest, FollowsThePrecedenceOfJinja) {
  EXPECT_EQ(render("{{ -2 ** 2 }} {{ 1 ~ 2 * 3 }} {{ not 1 == 2 }} {{ 1 < 2 < 3 }}"),
            "4 16 True True");
  EXPECT_EQ(render("{{ 'a' if false }}|{{ 'a' if 0 else 'b' if 0 else 'c' }}"), "|c");
}

TEST(JinjaTest, ReadsAttributesBeforeKeysOnlyWithADot) {
  const Json d = {{"d", {{"items", 1}, {"x", 2}}}};
  EXPECT_EQ(render("{{ d['items'] }} {{ d.x }} {{ d.items is callable }}", d), "1 2 True");
}

TEST(JinjaTest, KeepsLoopVariablesInsideTheLoop) {
  EXPECT_EQ(render("{% set x = 1 %}{% for i in [2, 3] %}{% set x = i %}{% endfor %}{{ x }}"), "1");
  EXPECT_EQ(render("{% for i in [1, 2] %}{{ x is defined }}{% set x = i %}{% endfor %}"),
            "FalseFalse");
  EXPECT_EQ(render("{% set n = namespace(x=1) %}{% for i in [2, 3] %}{% set n.x = n.x + i %}"
                   "{% endfor %}{{ n.x }}"),
            "6");
  EXPECT_EQ(render("{% for i in range(9) if i is odd %}{% if loop.last %}{% break %}{% endif %}"
                   "{{ loop.index }}{{ i }} {% endfor %}"),
            "11 23 35 ");
}

TEST(JinjaTest, CallsMacrosWithDefaultsCallersAndClosures) {
  EXPECT_EQ(render("{% macro m(a, b=a) %}<{{ a }}{{ b }}{{ x }}>{% endmacro %}{% set x = 5 %}"
                   "{{ m(1) }}{{ m(1, b=2) }}"),
            "<115><125>");
  EXPECT_EQ(render("{% macro m() %}[{{ caller('y') }}]{% endmacro %}"
                   "{% call(v) m() %}x{{ v }}{% endcall %}"),
            "[xy]");
}

TEST(JinjaTest, FormatsStringsBothWays) {
  EXPECT_EQ(render("{{ '%05.1f|%-4s|%x|%d%%' % (3.14159, 'ab', 255, 7) }}"), "003.1|ab  |ff|7%");
  EXPECT_EQ(render("{{ '{:>6}|{!r:^5}|{:,.2f}'.format('a', 'b', 1234.5) }}"),
            "     a| 'b' |1,234.50");
  EXPECT_EQ(render("{{ '{:>{w}}'.format('a', w=4) }}"), "   a");
  EXPECT_EQ(failure("{{ '{} {0}'.format(1) }}"), "ValueError:1");
}

TEST(JinjaTest, SplitsLikePython) {
  EXPECT_EQ(render("{{ ' a b  c '.split(none, 1) }}{{ ' a b  c '.rsplit(none, 1) }}"),
            "['a', 'b  c '][' a b', 'c']");
  EXPECT_EQ(render("{{ 'a,b,c'.rsplit(',', 1) }}{{ 'a\r\nb\n'.splitlines() }}"),
            "['a,b', 'c']['a', 'b']");
}

TEST(JinjaTest, TellsErrorsApart) {
  EXPECT_EQ(failure("{{ undef.x }}"), "undefined:1");
  EXPECT_EQ(failure("\n{{ [].append(1) }}"), "security:2");
  EXPECT_EQ(failure("{{ ''.__class__.__mro__ }}"), "security:1");
  EXPECT_EQ(failure("a\n\n{{ raise_exception('no') }}"), "raise_exception:3");
  EXPECT_EQ(failure("{{ 1 + 'a' }}"), "TypeError:1");
  EXPECT_EQ(failure("{{ 1 // 0 }}"), "ZeroDivisionError:1");
  EXPECT_EQ(failure("{{ 1|nope }}"), "syntax:1");
  EXPECT_EQ(failure("{% if 1 %}\n{{ 1|nope }}{% endif %}"), "runtime:2");
  EXPECT_EQ(failure("{% if 0 %}{{ 1|nope }}{% endif %}"), "rendered ");
}

TEST(JinjaTest, NamesTheLineOfASyntaxError) {
  EXPECT_EQ(failure("a\nb\n{{ 1 + }}"), "syntax:3");
  EXPECT_EQ(failure("a\n{% endfor %}"), "syntax:2");
  EXPECT_EQ(failure("{% if x %}\n\n"), "syntax:2");
  EXPECT_EQ(failure("x\n{{ 'open }}"), "syntax:2");
  EXPECT_EQ(failure("x\n{# open"), "syntax:2");
}

}  // namespace
}  // namespace batchmill
