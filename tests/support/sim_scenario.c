/* Reading scenarios: see sim_scenario.h. */
#include "tests/support/sim_scenario.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_SIZE_MAX 256

static const struct {
    const char *name;
    size_t offset;
} numbers[] = {
#define XX(name, standard) {#name, offsetof(struct rg_sim_scenario, name)},
    RG_SIM_SCENARIO_NUMBERS(XX)
#undef XX
};

static const char *const network_names[] = {
#define XX(name) #name,
    RG_SIM_FAULTS(XX)
#undef XX
};

static const char *const server_names[] = {
#define XX(name) #name,
    RG_SIM_GCS_TROUBLES(XX)
#undef XX
};

static bool set_number(struct rg_sim_scenario *scenario, const char *key, const char *value)
{
    char *end;
    uint64_t number = strtoull(value, &end, 10);
    for (size_t i = 0; i < RG_ARRAY_LEN(numbers) && *end == '\0' && end != value; i++) {
        if (strcmp(numbers[i].name, key) == 0) {
            memcpy((char *)scenario + numbers[i].offset, &number, sizeof(number));
            return true;
        }
    }
    return false;
}

static bool set_share(uint32_t *shares, const char *const *names, size_t count, const char *key,
                      const char *value)
{
    char *end;
    double percent = strtod(value, &end);
    bool valid = *end == '\0' && end != value && percent >= 0 && percent <= 100;
    for (size_t i = 0; i < count && valid; i++) {
        if (strcasecmp(names[i], key) == 0) {
            shares[i] = (uint32_t)(percent * RG_SIM_ALWAYS / 100 + 0.5);
            return true;
        }
    }
    return false;
}

static bool set_key(struct rg_sim_scenario *scenario, const char *key, const char *value)
{
    if (strncmp(key, "network.", 8) == 0) {
        return set_share(scenario->network, network_names, RG_ARRAY_LEN(network_names), key + 8,
                         value);
    }
    if (strncmp(key, "server.", 7) == 0) {
        return set_share(scenario->server, server_names, RG_ARRAY_LEN(server_names), key + 7,
                         value);
    }
    return set_number(scenario, key, value);
}

/* Cuts white space and comments off a line, in place. */
static char *trim(char *text)
{
    text[strcspn(text, "#")] = '\0';
    while (isspace((unsigned char)*text)) {
        text++;
    }
    size_t size = strlen(text);
    while (size > 0 && isspace((unsigned char)text[size - 1])) {
        text[--size] = '\0';
    }
    return text;
}

static bool read_line(struct rg_sim_scenario *scenario, char *line)
{
    line = trim(line);
    if (*line == '\0') {
        return true;
    }
    char *equals = strchr(line, '=');
    if (equals == NULL) {
        return false;
    }
    *equals = '\0';
    return set_key(scenario, trim(line), trim(equals + 1));
}

int rg_sim_scenario_read(struct rg_sim_scenario *out_scenario, const char *path)
{
    struct rg_sim_scenario scenario = {
#define XX(name, standard) .name = standard,
        RG_SIM_SCENARIO_NUMBERS(XX)
#undef XX
    };
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return -errno;
    }
    char line[LINE_SIZE_MAX];
    int number = 0, wrong = 0;
    while (wrong == 0 && fgets(line, sizeof(line), file) != NULL) {
        number++;
        wrong = read_line(&scenario, line) ? 0 : number;
    }
    fclose(file);
    if (wrong == 0) {
        *out_scenario = scenario;
    }
    return wrong;
}
