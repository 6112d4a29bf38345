#include "actors/prompt_builder.h"

#include <gtest/gtest.h>

namespace batchmill {
namespace {

BatchBody with_messages(Json messages) {
  BatchBody body;
  body.messages = std::move(messages);
  return body;
}

TEST(PromptBuilderTest, GivesTheDeveloperRoleOnlyToTemplatesThatKnowIt) {
  const BatchBody body = with_messages(Json::array({{{"role", "developer"}, {"content", "Rule"}}}));
  const ChatTemplate without("{% for m in messages %}{{ m.role }}:{{ m.content }}{% endfor %}", "",
                             "");
  EXPECT_EQ(render_chat(body, without, 0).text, "system:Rule");
  const ChatTemplate with(
      "{% for m in messages %}{% if m.role == 'developer' %}D{% else %}{{ m.role }}{% endif %}"
      ":{{ m.content }}{% endfor %}",
      "", "");
  EXPECT_EQ(render_chat(body, with, 0).text, "D:Rule");
}

TEST(PromptBuilderTest, ContinuesTheLastMessage) {
  BatchBody body = with_messages(Json::array(
      {{{"role", "user"}, {"content", "Hi"}}, {{"role", "assistant"}, {"content", "Hello wor"}}}));
  body.continue_final_message = true;
  const ChatTemplate chat("{% for m in messages %}<{{ m.content }}>{% endfor %}", "", "");
  const MarkedText prompt = render_chat(body, chat, 0);
  EXPECT_EQ(prompt.text, "<Hi><Hello wor");
  EXPECT_EQ(prompt.marked.back().end, prompt.text.size());
}

TEST(PromptBuilderTest, RefusesToContinueWhatTheTemplateLeftOut) {
  BatchBody body = with_messages(Json::array({{{"role", "assistant"}, {"content", "Hello"}}}));
  body.continue_final_message = true;
  const ChatTemplate chat("nothing", "", "");
  EXPECT_THROW(render_chat(body, chat, 0), LineRefused);
}

}  // namespace
}  // namespace batchmill
