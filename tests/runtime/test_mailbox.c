/* The mailbox: order, the sleep protocol step by step, and both under several posters. */
#include "runtime/mailbox.h"
#include "tests/support/test.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct letter {
    struct rg_mail mail;
    unsigned poster, number;
};

static void never_run(struct rg_mail *mail)
{
    (void)mail;
    abort();
}

static void make_chain(struct letter *letters, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct rg_mail *next = i + 1 < count ? &letters[i + 1].mail : NULL;
        letters[i] = (struct letter){.mail = {.next = next, .run = never_run}, .number = i};
    }
}

static unsigned number_of(struct rg_mail *mail)
{
    return RG_CONTAINER_OF(mail, struct letter, mail)->number;
}

static void check_numbers(struct rg_mail *mail, unsigned first, unsigned count)
{
    for (unsigned i = 0; i < count; i++, mail = mail->next) {
        RG_CHECK(mail != NULL);
        RG_CHECK_EQ(number_of(mail), first + i);
    }
    RG_CHECK(mail == NULL);
}

static void test_mail_comes_out_in_the_order_of_posting(void)
{
    struct rg_mailbox mailbox;
    rg_mailbox_init(&mailbox);
    struct letter letters[6];
    make_chain(letters, 6);
    letters[4].mail.next = NULL;
    RG_CHECK(rg_mailbox_drain(&mailbox) == NULL);
    RG_CHECK(!rg_mailbox_post(&mailbox, &letters[0].mail));
    RG_CHECK(!rg_mailbox_post_chain(&mailbox, &letters[1].mail));
    RG_CHECK(!rg_mailbox_post(&mailbox, &letters[5].mail));
    check_numbers(rg_mailbox_drain(&mailbox), 0, 6);
    RG_CHECK(rg_mailbox_drain(&mailbox) == NULL);
}

static void test_mail_keeps_the_owner_awake(void)
{
    struct rg_mailbox mailbox;
    rg_mailbox_init(&mailbox);
    struct letter letter;
    make_chain(&letter, 1);
    rg_mailbox_post(&mailbox, &letter.mail);
    RG_CHECK(!rg_mailbox_sleep_begin(&mailbox));
    check_numbers(rg_mailbox_drain(&mailbox), 0, 1);
}

static void test_one_post_per_sleep_wakes(void)
{
    struct rg_mailbox mailbox;
    rg_mailbox_init(&mailbox);
    struct letter letters[5];
    for (int sleep = 0; sleep < 2; sleep++) {
        make_chain(letters, 5);
        RG_CHECK(rg_mailbox_sleep_begin(&mailbox));
        letters[2].mail.next = NULL;
        RG_CHECK(rg_mailbox_post_chain(&mailbox, &letters[0].mail));
        RG_CHECK(!rg_mailbox_post(&mailbox, &letters[3].mail));
        rg_mailbox_sleep_end(&mailbox);
        RG_CHECK(!rg_mailbox_post(&mailbox, &letters[4].mail));
        check_numbers(rg_mailbox_drain(&mailbox), 0, 5);
    }
}

static void test_no_post_wakes_after_a_sleep_that_ended_by_itself(void)
{
    struct rg_mailbox mailbox;
    rg_mailbox_init(&mailbox);
    struct letter letter;
    make_chain(&letter, 1);
    RG_CHECK(rg_mailbox_sleep_begin(&mailbox));
    rg_mailbox_sleep_end(&mailbox);
    RG_CHECK(!rg_mailbox_post(&mailbox, &letter.mail));
    check_numbers(rg_mailbox_drain(&mailbox), 0, 1);
}

#define POSTERS 3
#define LETTERS_EACH 40000
#define WAKE_TIMEOUT_MS ((int)(RG_TEST_PATIENCE_NS / RG_NS_PER_MS))

struct post_office {
    pid_t owner;
    struct rg_mailbox mailbox;
    int wake_fd;
    _Atomic unsigned wake_count;
};

struct poster {
    pthread_t thread;
    struct post_office *office;
    struct letter *letters;
    uint64_t random;
};

/* Gives the owner time to fall asleep; others may keep it awake. */
static void let_sleep(const struct post_office *office)
{
    for (int i = 0; i < 50 && !rg_test_is_asleep(office->owner); i++) {
        sched_yield();
    }
}

static void *post_letters(void *context)
{
    struct poster *poster = context;
    struct post_office *office = poster->office;
    unsigned posted = 0;
    while (posted < LETTERS_EACH) {
        poster->random = poster->random * UINT64_C(6364136223846793005) + 1442695040888963407;
        unsigned dice = (unsigned)(poster->random >> 40);
        unsigned batch = RG_MIN(1 + dice % 3, LETTERS_EACH - posted);
        struct letter *letters = &poster->letters[posted];
        letters[batch - 1].mail.next = NULL;
        posted += batch;
        bool wake = batch == 1 ? rg_mailbox_post(&office->mailbox, &letters->mail)
                               : rg_mailbox_post_chain(&office->mailbox, &letters->mail);
        if (wake) {
            atomic_fetch_add(&office->wake_count, 1);
            eventfd_write(office->wake_fd, 1);
        }
        if (dice % 64 == 0) {
            let_sleep(office);
        }
    }
    return NULL;
}

static void run_letters(struct rg_mail *mail, unsigned *next_number, unsigned *count)
{
    for (struct rg_mail *next; mail != NULL; mail = next) {
        next = mail->next;
        struct letter *letter = RG_CONTAINER_OF(mail, struct letter, mail);
        RG_CHECK_EQ(letter->number, next_number[letter->poster]);
        next_number[letter->poster]++;
        ++*count;
    }
}

static void test_nothing_is_lost_or_overtaken_among_posters(void)
{
    static struct letter letters[POSTERS][LETTERS_EACH];
    struct post_office office = {.owner = gettid(), .wake_fd = eventfd(0, EFD_NONBLOCK)};
    struct poster posters[POSTERS];
    for (unsigned i = 0; i < POSTERS; i++) {
        make_chain(letters[i], LETTERS_EACH);
        for (unsigned n = 0; n < LETTERS_EACH; n++) {
            letters[i][n].poster = i;
        }
        posters[i] =
            (struct poster){.office = &office, .letters = letters[i], .random = rg_test_random()};
        RG_CHECK_EQ(pthread_create(&posters[i].thread, NULL, post_letters, &posters[i]), 0);
    }
    unsigned next_number[POSTERS] = {0}, count = 0, woken = 0;
    while (count < POSTERS * LETTERS_EACH) {
        run_letters(rg_mailbox_drain(&office.mailbox), next_number, &count);
        if (count < POSTERS * LETTERS_EACH && rg_mailbox_sleep_begin(&office.mailbox)) {
            struct pollfd wake = {.fd = office.wake_fd, .events = POLLIN};
            RG_CHECK_EQ(poll(&wake, 1, WAKE_TIMEOUT_MS), 1);
            eventfd_t value;
            eventfd_read(office.wake_fd, &value);
            RG_CHECK_EQ(value, 1);
            rg_mailbox_sleep_end(&office.mailbox);
            woken++;
        }
    }
    for (unsigned i = 0; i < POSTERS; i++) {
        pthread_join(posters[i].thread, NULL);
    }
    RG_CHECK_EQ(atomic_load(&office.wake_count), woken);
    close(office.wake_fd);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_mail_comes_out_in_the_order_of_posting),
        RG_TEST(test_mail_keeps_the_owner_awake),
        RG_TEST(test_one_post_per_sleep_wakes),
        RG_TEST(test_no_post_wakes_after_a_sleep_that_ended_by_itself),
        RG_TEST(test_nothing_is_lost_or_overtaken_among_posters),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
