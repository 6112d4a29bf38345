// The filters, tests and global functions that every template can use.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "engine/jinja_arguments.h"
#include "engine/jinja_ast.h"

namespace batchmill::jinja {

Filter find_filter(std::string_view name);  // null if there is none
Filter find_text_filter(std::string_view name);
Filter find_list_filter(std::string_view name);
Filter find_number_filter(std::string_view name);
Test find_test(std::string_view name);  // null if there is none
Function find_global(std::string_view name);

}  // namespace batchmill::jinja
