/* See retry_after.h. */
#include "gcs/wire/retry_after.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define DATE_SIZE_MAX 40 /* the longest form, "Wednesday, 09-Nov-94 08:49:37 GMT", has 33 */
#define SECONDS_MAX (UINT64_MAX / RG_NS_PER_S)

/* 0 to 11, or -1. */
static int month_index(const char *name)
{
    static const char names[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    const char *found = strlen(name) == 3 ? strstr(names, name) : NULL;
    return found == NULL || (found - names) % 3 != 0 ? -1 : (int)(found - names) / 3;
}

/* True when one of the forms matches to the end. Names of days are not compared with the date. */
static bool scan_date(const char *text, struct tm *date, char month[4])
{
    int end = -1, size = (int)strlen(text);
    sscanf(text, "%*3[A-Za-z], %2d %3[A-Za-z] %4d %2d:%2d:%2d GMT%n", &date->tm_mday, month,
           &date->tm_year, &date->tm_hour, &date->tm_min, &date->tm_sec, &end);
    if (end == size) {
        return true;
    }
    end = -1;
    sscanf(text, "%*[A-Za-z], %2d-%3[A-Za-z]-%2d %2d:%2d:%2d GMT%n", &date->tm_mday, month,
           &date->tm_year, &date->tm_hour, &date->tm_min, &date->tm_sec, &end);
    if (end == size) {
        /* RFC 850 has two digits. */
        date->tm_year += date->tm_year < 70 ? 2000 : 1900;
        return true;
    }
    end = -1;
    sscanf(text, "%*3[A-Za-z] %3[A-Za-z] %2d %2d:%2d:%2d %4d%n", month, &date->tm_mday,
           &date->tm_hour, &date->tm_min, &date->tm_sec, &date->tm_year, &end);
    return end == size;
}

int rg_http_date_parse(struct rg_h1_slice value, int64_t *out_seconds)
{
    char text[DATE_SIZE_MAX + 1], month[4];
    if (value.size == 0 || value.size > DATE_SIZE_MAX) {
        return -EINVAL;
    }
    memcpy(text, value.data, value.size);
    text[value.size] = '\0';
    struct tm date = {0};
    if (!scan_date(text, &date, month)) {
        return -EINVAL;
    }
    date.tm_mon = month_index(month);
    if (date.tm_mon < 0 || date.tm_mday < 1 || date.tm_mday > 31 || date.tm_year < 1970 ||
        date.tm_hour < 0 || date.tm_hour > 23 || date.tm_min < 0 || date.tm_min > 59 ||
        date.tm_sec < 0 || date.tm_sec > 60) {
        return -EINVAL;
    }
    date.tm_year -= 1900;
    *out_seconds = timegm(&date);
    return 0;
}

/* -EINVAL unless all are digits; what does not fit becomes SECONDS_MAX. */
static int parse_seconds(struct rg_h1_slice value, uint64_t *out_seconds)
{
    uint64_t seconds = 0;
    if (value.size == 0) {
        return -EINVAL;
    }
    for (uint32_t i = 0; i < value.size; i++) {
        if (value.data[i] < '0' || value.data[i] > '9') {
            return -EINVAL;
        }
        seconds = RG_MIN(seconds * 10 + (uint64_t)(value.data[i] - '0'), SECONDS_MAX);
    }
    *out_seconds = seconds;
    return 0;
}

uint64_t rg_retry_after_parse(const struct rg_h1_slice *value, const struct rg_h1_slice *date)
{
    uint64_t seconds = 0;
    int64_t from_s, until_s;
    if (parse_seconds(*value, &seconds) < 0 && rg_http_date_parse(*value, &until_s) == 0 &&
        date != NULL && rg_http_date_parse(*date, &from_s) == 0 && until_s > from_s) {
        seconds = RG_MIN((uint64_t)(until_s - from_s), SECONDS_MAX);
    }
    return seconds * RG_NS_PER_S;
}
