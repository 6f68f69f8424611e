/* Recursive descent through list := selector {"," selector}, selector := name {"/" name} ["("
 * list ")"]. It carries how many names of the wanted path have matched so far. A selector that
 * ends without a mismatch selects: it is the wanted member, or one above it, or one inside it. */
#include "emulator/api/fields.h"

#include "emulator/wire/text.h"

#include <ctype.h>

struct scan {
    const char *at, *end;
    const char *path[2]; /* The path of the member that is looked for, outermost first. */
    uint32_t path_count;
    bool valid, selected;
};

static bool accept(struct scan *scan, char c)
{
    if (scan->at < scan->end && *scan->at == c) {
        scan->at++;
        return true;
    }
    return false;
}

static struct rg_h1_slice scan_name(struct scan *scan)
{
    const char *start = scan->at;
    while (scan->at < scan->end && (isalnum((unsigned char)*scan->at) || *scan->at == '*' ||
                                    *scan->at == '_' || *scan->at == '-')) {
        scan->at++;
    }
    return (struct rg_h1_slice){start, (uint32_t)(scan->at - start)};
}

static bool name_agrees(const struct scan *scan, struct rg_h1_slice name, uint32_t level)
{
    return level >= scan->path_count || rg_text_equals(name, "*") ||
           rg_text_equals(name, scan->path[level]);
}

static void scan_list(struct scan *scan, uint32_t level, uint32_t depth, bool outer_agrees)
{
    do {
        bool agrees = outer_agrees;
        uint32_t inner = level;
        do {
            struct rg_h1_slice name = scan_name(scan);
            scan->valid = scan->valid && name.size > 0;
            agrees = agrees && name_agrees(scan, name, inner++);
        } while (accept(scan, '/'));
        if (accept(scan, '(')) {
            if (depth == RG_FIELDS_DEPTH_MAX) {
                scan->valid = false;
                return;
            }
            scan_list(scan, inner, depth + 1, agrees);
            scan->valid = accept(scan, ')') && scan->valid;
        } else {
            scan->selected = scan->selected || agrees;
        }
    } while (accept(scan, ','));
}

static struct scan scan_mask(struct rg_h1_slice mask, const char *outer, const char *name)
{
    struct scan scan = {.at = mask.data, .end = mask.data + mask.size, .valid = true};
    if (outer != NULL) {
        scan.path[scan.path_count++] = outer;
    }
    scan.path[scan.path_count++] = name;
    scan_list(&scan, 0, 0, true);
    scan.valid = scan.valid && scan.at == scan.end;
    return scan;
}

bool rg_fields_select(struct rg_h1_slice mask, const char *outer, const char *name)
{
    return mask.size == 0 || scan_mask(mask, outer, name).selected;
}

bool rg_fields_valid(struct rg_h1_slice mask)
{
    return mask.size == 0 || scan_mask(mask, NULL, "").valid;
}
